"""Take results out of a run, and records back in: policies, prompts, rollouts, spans, samples, chat files.

Each kind of export is a class whose constructor is its settings. It reads the store page by page and writes one file or
folder, whole or not at all.
"""
