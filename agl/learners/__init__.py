"""Samples to new weights: the Learner protocol (base) and the engines behind it (torch)."""
