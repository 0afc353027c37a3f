"""The algorithm on the page about algorithms finds the better prompt, from the command line and after a stop."""

from __future__ import annotations

import shlex
from pathlib import Path

from doc_pages import ROOT, blocks
from train_processes import finished, metrics_of, resume_train, start_train

from agl.config import check, compose

PAGE = ROOT / "docs" / "algorithms.md"


def page_algorithm(folder: Path) -> str:
    """Write the page's algorithm into a folder; return how settings name it."""
    (block,) = [block for block in blocks(PAGE, "python") if block.startswith("# algorithm.py")]
    assert len(block.splitlines()) <= 40
    (folder / "algorithm.py").write_text(block)
    return f"algorithm.function={folder}/algorithm.py:best_opening"


def test_the_commands_of_the_page_have_settings_that_exist(tmp_path: Path) -> None:
    named = page_algorithm(tmp_path)
    commands = [
        line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("agl train")
    ]
    assert commands
    for command in commands:
        arguments = shlex.split(command.replace("algorithm.function=algorithm.py:best_opening", named))
        check(compose("train", arguments[2:]))


def test_the_algorithm_of_the_page_finds_the_better_prompt_and_is_resumable(tmp_path: Path) -> None:
    (command,) = [
        line for block in blocks(PAGE, "sh") for line in block.splitlines() if "best_opening" in line
    ]
    arguments = shlex.split(
        command.replace("algorithm.function=algorithm.py:best_opening", page_algorithm(tmp_path))
    )
    run_dir = tmp_path / "run"
    code, out, err = finished(
        start_train(run_dir, *arguments[2:], "metrics.console=plain", "data.num_val=40")
    )
    assert code == 0, err
    assert "+Book a room that is free for the whole meeting." in out
    steps = metrics_of(run_dir)
    assert steps[1]["search/prompts"] == 3
    assert steps[max(steps)]["val/reward_greedy"] > steps[0]["val/reward_greedy"]
    code, again, err = finished(resume_train(run_dir))
    assert code == 0, err
    assert metrics_of(run_dir) == steps
    assert "Held-out reward" in again
