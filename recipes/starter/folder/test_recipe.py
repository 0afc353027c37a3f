"""What must hold before you train: the grader is right, the data are whole, the agent answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grader import grade

HERE = Path(__file__).parent
QUEUES = {"billing", "shipping", "returns", "technical"}


def tasks(split: str) -> list[dict[str, str]]:
    """The tasks of a split."""
    lines = (HERE / "data" / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("billing", 1.0), (" Billing\n", 1.0), ("shipping", 0.0), ("It is for billing.", 0.0), (None, 0.0)],
)
def test_only_the_name_of_the_right_queue_is_rewarded(answer: object, reward: float) -> None:
    assert grade(answer, {"message": "I was charged twice.", "queue": "billing"}) == reward


def test_every_task_has_a_message_and_a_queue_and_occurs_once() -> None:
    found = [task for split in ("train", "val", "test") for task in tasks(split)]
    assert all(task["message"] and task["queue"] in QUEUES for task in found)
    assert len({task["message"] for task in found}) == len(found)


def test_the_agent_answers_a_task() -> None:
    command = [sys.executable, "-m", "agl", "run", "+recipe=STARTER", "--limit", "1"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 succeeded" in done.stdout
