"""``agl export`` and ``agl import`` from outside: what was taken out of a trained run does what the run did."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from doc_pages import ROOT, blocks
from eval_processes import run_eval
from store_processes import served
from train_processes import SMALL, finished, metrics_of, start_train
from transformers import AutoModelForCausalLM

from agl.config import check, compose

pytestmark = pytest.mark.timeout(600)  # four runs of agl, which a busy machine may take a minute for each


def agl(*arguments: str, cwd: Path) -> str:
    """Run a command that succeeds; return what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", "agl", *arguments]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=200, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished small run ``runs/one``."""
    folder = tmp_path_factory.mktemp("exported")
    small = [*SMALL, "algorithm.iterations=2", "data.num_val=2", "algorithm.save_every=1"]
    code, _, err = finished(start_train(Path("runs/one"), *small, cwd=folder))
    assert code == 0, err
    return folder


def test_an_exported_policy_loads_in_transformers_and_evaluates_as_the_run(trained: Path) -> None:
    agl("export", "what=policy", "--out", "mine", cwd=trained)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        exported, own = (
            AutoModelForCausalLM.from_pretrained(trained / folder)(ids).logits
            for folder in ("mine", "runs/one/policy")
        )
    assert torch.equal(exported, own)
    reports = []
    for run, who in (("a", ["--resources", "runs/one"]), ("b", ["policy.path=mine"])):
        code, _, err = run_eval(
            "+recipe=ppo_sql", *who, "--limit", "4", "-k", "2", "--run-dir", f"runs/{run}", cwd=trained
        )
        assert code == 0, err
        reports.append(json.loads((trained / "runs" / run / "evaluation.json").read_text())["evaluated"])
    tasks = [
        [(task["task_id"], [one["reward"] for one in task["runs"]]) for task in report["tasks"]]
        for report in reports
    ]
    assert tasks[0] == tasks[1]
    assert reports[0]["reward"] == reports[1]["reward"]


def test_an_exported_chat_file_is_learned_by_sft(trained: Path) -> None:
    report = json.loads(
        agl("export", "what=sft", "min_reward=0", "top_k=1", "--run-dir", "one", "--json", cwd=trained)
    )
    code, out, err = finished(
        start_train(
            Path("runs/sft"),
            "+recipe=sft_sql",
            "algorithm.files=[sft.jsonl]",
            "algorithm.rounds=1",
            "algorithm.group_size=0",
            "algorithm.tasks_per_round=null",
            "algorithm.epochs=1",
            "algorithm.min_reward=0",
            "data.num_val=2",
            "metrics.console=plain",
            cwd=trained,
        )
    )
    assert code == 0, err
    read = re.search(r"given: (\d+) examples(?:; left out: (.*))?", out + err)
    assert read is not None
    refused = sum(map(int, re.findall(r"(\d+) \w+", read.group(2) or "")))
    assert int(read.group(1)) + refused == report["counts"]["conversations"]
    assert int(read.group(1)) > refused
    assert metrics_of(trained / "runs" / "sft")[1]["round/examples"] == int(read.group(1))


def test_exported_spans_come_back_through_a_served_store(trained: Path) -> None:
    agl("export", "what=spans", "--run-dir", "one", cwd=trained)
    with served("store=memory", folder=trained) as store:
        words = agl("import", "spans.jsonl", "--store-url", store.url, cwd=trained)
        assert words.startswith(f"{store.url}: 1 run, ")
        agl("export", "what=spans", "--store-url", store.url, "--out", "again.jsonl", cwd=trained)
    assert (trained / "again.jsonl").read_bytes() == (trained / "spans.jsonl").read_bytes()
    agl("import", "spans.jsonl", "--run-dir", "runs/copy", cwd=trained)
    agl("export", "what=spans", "--run-dir", "copy", "--out", "third.jsonl", cwd=trained)
    assert (trained / "third.jsonl").read_bytes() == (trained / "spans.jsonl").read_bytes()


def test_every_command_of_the_page_has_settings_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    converter = tmp_path / "llama.cpp" / "convert_hf_to_gguf.py"
    converter.parent.mkdir()
    converter.touch()
    lines = [line for block in blocks(ROOT / "docs" / "export.md", "sh") for line in block.splitlines()]
    exports = [shlex.split(line, comments=True)[2:] for line in lines if line.startswith("agl export")]
    assert len(exports) > 8
    for words in exports:
        check(compose("export", [word for word in words if "=" in word and not word.startswith("-")]))
