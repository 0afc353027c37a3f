"""What the documentation shows, runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from doc_pages import ROOT, blocks
from proxy_processes import agl_proxy, scripted_upstream, served_proxy
from store_processes import agl_store, served
from train_processes import finished, start_train

from agl.config import check, compose

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONFIGS = ROOT / "configs"
POLICY = ROOT / "recipes" / "sql" / "policy"
MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""What the pages train; the tests train the recipe's own policy instead."""
SERVED = "http://127.0.0.1:4747"
"""Where the pages find a store that is served."""
PROXY = "http://127.0.0.1:4748"
"""Where they find a proxy, with a model ``m``."""


def user_folder(folder: Path) -> Path:
    """A folder with the README's agent and some tasks."""
    agent = next(block for block in blocks(ROOT / "README.md", "python") if "# agent.py" in block)
    (folder / "agent.py").write_text(agent)
    tasks = "".join(json.dumps({"question": f"{n} + 1?", "answer": str(n % 10)}) + "\n" for n in range(12))
    for name in ("train.jsonl", "val.jsonl"):
        (folder / name).write_text(tasks)
    return folder


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{page.stem}-{i}")
        for page in PAGES
        for i, block in enumerate(blocks(page, "python"))
    ],
)
def test_every_python_block_runs(block: str, tmp_path: Path) -> None:
    folder = user_folder(tmp_path)
    text = block.replace(MODEL, str(POLICY)).replace(
        "iterations=20", "iterations=1, max_tokens=8, tasks_per_iteration=4"
    )
    with ExitStack() as stack:
        if SERVED in text:
            store = stack.enter_context(served("store=memory", folder=folder))
            text = text.replace(SERVED, store.url)
            if PROXY in text:
                upstream = stack.enter_context(scripted_upstream())
                endpoint = f"proxy.endpoints={{gpu: {{model: m, urls: ['{upstream.url}']}}}}"
                arguments = ("--store-url", store.url, endpoint)
                text = text.replace(PROXY, stack.enter_context(served_proxy(*arguments, folder=folder)).url)
        (folder / "block.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "block.py"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
            env=os.environ,
        )
    assert done.returncode == 0, done.stderr


def test_the_readme_command_trains_the_readme_agent(tmp_path: Path) -> None:
    (command,) = [
        line
        for block in blocks(ROOT / "README.md", "sh")
        for line in block.splitlines()
        if "agent.target=agent.py:answer" in line
    ]
    arguments = command.replace(MODEL, str(POLICY)).split()[2:]
    small = [
        "algorithm.iterations=1",
        "algorithm.tasks_per_iteration=4",
        "algorithm.max_tokens=8",
        "metrics.console=plain",
    ]
    code, out, err = finished(start_train(tmp_path / "run", *arguments, *small, cwd=user_folder(tmp_path)))
    assert code == 0, err
    assert "preflight:" in out


def test_every_row_of_the_readmes_table_of_settings_is_right() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("\n| to | say |\n")[1].split("\n\n")[0]
    said = [re.findall(r"`([^`]+)`", row)[0] for row in table.splitlines()[1:]]
    assert len(said) > 5
    for overrides in said:
        if not overrides.startswith("agl "):
            check(compose("train", ["+recipe=ppo_sql", *overrides.split()]))


def test_every_setting_that_the_pages_name_exists() -> None:
    """``group.key=value`` in code of the pages composes; values that need files or hubs are only looked up."""
    named = {
        match
        for page in PAGES
        for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
        for match in re.findall(
            r"(?<![\w./=])\+?((?:algorithm|learner|policy|adapter|runner|metrics|proxy)\.[\w.]+)=", code
        )
    }
    assert len(named) > 5
    done = subprocess.run(
        [sys.executable, "-m", "agl", "train", "+recipe=ppo_sql", "--cfg"],
        capture_output=True,
        text=True,
        check=True,
    )
    composed = yaml.safe_load(done.stdout)
    unknown = []
    for name in sorted(named - {"policy.lora._target_"}):
        group, _, rest = name.partition(".")
        options = [yaml.safe_load(file.read_text("utf-8")) for file in (CONFIGS / group).glob("*.yaml")]
        if not any(_has(node, rest.split(".")) for node in (composed[group], *options)):
            unknown.append(name)
    assert unknown == []


def _has(node: object, parts: Sequence[str]) -> bool:
    """Whether there is such a key; below an open mapping such as ``agent.settings: {}`` there may be any."""
    if not parts or node == {}:
        return True
    return isinstance(node, dict) and parts[0] in node and _has(node[parts[0]], parts[1:])


def test_every_store_command_of_the_pages_does_what_it_says(tmp_path: Path) -> None:
    commands = [
        shlex.split(line, comments=True)[2:]
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if line.startswith("agl store")
    ]
    upkeep = [command for command in commands if command[:1] in (["gc"], ["backup"])]
    assert len(upkeep) > 3
    with served(folder=tmp_path) as store:
        for run_id in ("NAME", "OTHER"):
            httpx.post(f"{store.url}/v1/runs", json={"name": "n", "run_id": run_id}).raise_for_status()
            httpx.patch(f"{store.url}/v1/runs/{run_id}", json={"status": "succeeded"}).raise_for_status()
        for command in upkeep:
            if SERVED in command:
                at_url = [store.url if word == SERVED else word for word in command]
                code, _, err = agl_store(*at_url, folder=tmp_path)
                assert (code, err) == (0, ""), command
        store.process.terminate()
        assert store.ended()[0] == 0
    (tmp_path / "copy.sqlite").unlink()
    for command in commands:
        if SERVED not in command:
            shown = [] if command in upkeep else ["--cfg"]
            code, _, err = agl_store(*command, *shown, folder=tmp_path)
            assert (code, err) == (0, ""), command


def test_every_proxy_command_of_the_pages_has_settings_that_exist(tmp_path: Path) -> None:
    commands = [
        shlex.split(line, comments=True)[2:]
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if line.startswith("agl proxy")
    ]
    assert commands
    for command in commands:
        code, _, err = agl_proxy(*command, "--cfg", folder=tmp_path)
        assert (code, err) == (0, ""), command


def test_the_endpoints_of_the_proxys_page_are_settings(tmp_path: Path) -> None:
    (group,) = blocks(ROOT / "docs" / "proxy.md", "yaml")
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "mine.yaml").write_text(group)
    settings = compose("train", ["+recipe=ppo_sql", "proxy=mine"], config_dir=tmp_path)
    check(settings)
    assert set(settings.values["proxy"]["endpoints"]) == {"policy", "judge", "claude", "critic"}


def test_every_train_and_runner_command_of_the_page_of_modes_has_settings_that_exist(tmp_path: Path) -> None:
    page = ROOT / "docs" / "modes.md"
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    lines += re.findall(r"`(agl train \+recipe[^`\n]*)`", page.read_text(encoding="utf-8"))
    commands = [
        shlex.split(line, comments=True)[1:] for line in lines if line.startswith(("agl train", "agl runner"))
    ]
    assert len(commands) > 5
    for command in commands:
        code, _, err = agl_store(*command, "--cfg", folder=tmp_path, agl=(sys.executable, "-m", "agl"))
        assert (code, err) == (0, ""), command


def test_every_command_of_the_page_of_runners_runs_or_has_settings_that_exist(tmp_path: Path) -> None:
    page = ROOT / "docs" / "runners.md"
    agent = next(block for block in blocks(page, "python") if "# my_agent.py" in block)
    (tmp_path / "my_agent.py").write_text(agent)
    (tmp_path / "tasks.jsonl").write_text('{"a": 1, "b": 1, "sum": 2}\n')
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith(("agl run ", "agl runner "))]
    assert len(commands) > 5
    for command in commands:
        shown = ["--cfg"] if command[0] == "runner" else []
        code, out, err = agl_store(*command, *shown, folder=tmp_path, agl=(sys.executable, "-m", "agl"))
        assert code == 0, (command, err)
        assert shown or "1 task: 1 succeeded, mean reward 1" in out
