"""What someone new does on the first day, in an empty folder, with the real commands; small, not to take that long."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

AGL = (sys.executable, "-m", "agl")
TRAINING = (
    "algorithm.iterations=4",
    "algorithm.evaluate_every=4",
    "data.num_val=16",
    "metrics.console=plain",
)
"""What keeps the training of the recipe short: it learns, though not all there is to learn."""


def agl(folder: Path, *arguments: str) -> str:
    """Run a command as a user does; return what it printed."""
    environment = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        [*AGL, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"agl {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout


def as_json(folder: Path, *arguments: str) -> Any:
    return json.loads(agl(folder, *arguments, "--json"))


def test_from_an_empty_folder_to_a_trained_model_in_transformers(tmp_path: Path) -> None:
    made = agl(tmp_path, "init", "tickets")
    folder = tmp_path / "tickets"
    for step in ("cd tickets", "agl doctor +recipe=tickets", "agl train +recipe=tickets"):
        assert step in made

    assert re.search(r"\b0 to mend$", agl(folder, "doctor", "+recipe=tickets").rstrip())
    ran = agl(folder, "run", "+recipe=tickets", "--limit", "3")
    assert "3 tasks: 3 succeeded" in ran

    trained = agl(folder, "train", "+recipe=tickets", *TRAINING)
    (run,) = [path for path in (folder / "runs").iterdir() if (path / "policy").is_dir()]
    assert f"runs/{run.name}/policy" in trained

    (listed,) = [one for one in as_json(folder, "ls") if one["command"] == "train"]
    assert (listed["run_id"], listed["status"], listed["step"]) == (run.name, "succeeded", 4)
    assert run.name in agl(folder, "ls")
    shown = agl(folder, "show")
    assert f"Run         {run.name}" in shown
    assert "val/reward" in shown
    one = as_json(folder, "ls", "rollouts", "--order", "reward", "--limit", "1")[0]["rollout_id"]
    assert "assistant: " in agl(folder, "show", one)

    evaluated = as_json(folder, "eval", "+recipe=tickets", "--against", "base", "--limit", "8", "-k", "2")
    assert evaluated["evaluated"]["contestant"] == f"runs/{run.name}"
    assert evaluated["against"]["contestant"].startswith("base ")
    measured = [evaluated[who]["reward"] for who in ("evaluated", "against")]
    assert [(reward["num_tasks"], reward["num_rewards"]) for reward in measured] == [(8, 16), (8, 16)]
    difference = evaluated["comparison"]["difference"]
    assert difference["mean"] == pytest.approx(measured[0]["mean"] - measured[1]["mean"])
    assert 0 <= difference["p_value"] <= 1

    agl(folder, "export", "what=policy", "--out", "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model").eval()
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "My parcel is late."}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    with torch.inference_mode():
        said = model.generate(**asked, max_new_tokens=8, do_sample=False)
    assert said.shape[1] > asked["input_ids"].shape[1]

    agl(folder, "export", "what=sft", "--run-dir", run.name)
    chats = [json.loads(line) for line in (folder / "sft.jsonl").read_text(encoding="utf-8").splitlines()]
    assert chats
    assert all([turn["role"] for turn in chat["messages"]][-2:] == ["user", "assistant"] for chat in chats)
