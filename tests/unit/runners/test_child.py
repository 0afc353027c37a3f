"""A child's side of the pipes. Real processes: tests/integration/test_process_runners.py."""

import os
import subprocess
import sys
import threading

from agl.runners.child import Channel
from agl.runners.orders import DRAIN, Word, framed, word_in


def channel() -> tuple[Channel, int, int]:
    """Return a child's channel, and the parent's ends: to write commands, and to read words."""
    source, commands = os.pipe()
    words, target = os.pipe()
    return Channel(os.fdopen(source, "rb", buffering=0), os.fdopen(target, "wb")), commands, words


def test_commands_of_the_parent_and_its_end_are_heard() -> None:
    ours, commands, words = channel()
    os.write(commands, framed(b"order") + DRAIN)
    heard: list[str] = []
    ended = threading.Event()
    assert ours.order() == b"order"
    ours.watch(lambda: heard.append("drain"), ended.set)
    os.close(commands)
    assert ended.wait(10)
    assert heard == ["drain"]
    os.close(words)


def test_words_reach_the_parent_and_a_parent_that_is_gone_is_no_error() -> None:
    ours, commands, words = channel()
    ours.say(Word(kind="settled"))
    assert word_in(os.read(words, 1000)) == Word(kind="settled")
    os.close(words)
    ours.say(Word(kind="settled"))
    os.close(commands)


def test_a_runner_process_loads_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "numpy", "fastapi", "starlette", "uvicorn", "hydra", "typer", "litellm")
    program = f"import agl.runners.child, sys; print(sorted(set(sys.modules) & set({heavy!r})))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
