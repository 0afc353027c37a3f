"""agl run: which settings it needs of those of agl train, what it refuses, and what it prints."""

from pathlib import Path

import pytest
import yaml
from command_line import Agl

from agl.cli.run import Options, run_settings

STORE = "http://127.0.0.1:4747"
AGENT = """
async def agent(task):
    if task == "bad":
        raise ValueError("bad task")
    return float(task["n"]) if isinstance(task, dict) else 1.0

def tasks(split):
    return [{"n": number} for number in range(12)] if split == "train" else []
"""


@pytest.fixture
def file(in_folder: Path) -> Path:
    path = in_folder / "my_agent.py"
    path.write_text(AGENT)
    return path


def test_a_run_here_takes_a_store_in_memory_and_nothing_that_learns(in_folder: Path) -> None:
    settings = run_settings(["+recipe=ppo_sql"], Options())
    assert settings.values["_target_"] == "agl.launch.tasks.TaskRun"
    assert settings.values["store"] == {"_target_": "agl.store.sqlite.InMemoryLightningStore"}
    assert settings.values["runner"]["_target_"] == "agl.runners.inline.InlineRunners"
    assert "inference" in settings.values
    assert not {"learner", "algorithm", "adapter", "metrics", "data"} & set(settings.values)


def test_a_policy_that_nobody_named_is_left_out(in_folder: Path) -> None:
    assert "inference" not in run_settings(["agent.target=a.py:b"], Options()).values


def test_a_store_of_ones_own_choice_is_kept(in_folder: Path) -> None:
    settings = run_settings(["store=sqlite", "store.path=kept.sqlite"], Options())
    assert settings.values["store"]["path"] == "kept.sqlite"


def test_joining_takes_the_agent_and_the_store_alone(in_folder: Path, monkeypatch) -> None:
    monkeypatch.setenv("AGL_STORE_TOKEN", "of-the-store")
    options = Options(store_url=STORE, processes=3, max_concurrency=7, run_id="r1")
    values = run_settings(["+recipe=ppo_sql"], options).values
    assert values["_target_"] == "agl.launch.runner.StandaloneRunner"
    assert (values["store"]["url"], values["store"]["token"]) == (STORE, "of-the-store")
    assert values["runner"]["_target_"] == "agl.runners.processes.ProcessRunners"
    assert (values["runner"]["processes"], values["runner"]["max_concurrency"]) == (3, 7)
    assert values["run_id"] == "r1"
    assert not {"inference", "proxy", "policy", "data"} & set(values)


def test_a_runner_that_joins_is_one_child_process_unless_told_otherwise(in_folder: Path) -> None:
    runner = run_settings([], Options(store_url=STORE)).values["runner"]
    assert (runner["_target_"], runner["processes"]) == ("agl.runners.processes.ProcessRunners", 1)
    here = run_settings(["runner=inline"], Options(store_url=STORE)).values["runner"]
    assert here["_target_"] == "agl.runners.inline.InlineRunners"


def test_a_token_on_the_command_line_is_taken_and_not_shown(file: Path, agl: Agl) -> None:
    options = Options(store_url=STORE, token="a-secret-of-some-length")
    assert run_settings([], options).values["store"]["token"] == "a-secret-of-some-length"
    assert "a-secret" not in repr(options)
    given = [
        "runner",
        f"agent.target={file}:agent",
        "--store-url",
        STORE,
        "--token",
        "a-secret-of-some-length",
    ]
    code, out, err = agl(*given, "--cfg")
    assert (code, err) == (0, "")
    assert "a-secret" not in out
    assert yaml.safe_load(out)["store"]["url"] == STORE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--token", "x"], "--token and --run-id are for joining"),
        (["--store-url", STORE, "--task", "1"], "--task and --mode are for a run without --store-url"),
        (["--mode", "dev"], "--mode dev: one of train, val, test"),
        (["--limit", "-1"], "--limit -1"),
        (["runner=remote"], "runner=remote runs nothing"),
        (["--processes", "0"], "runner.processes=0 must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(file: Path, agl: Agl, arguments, message: str) -> None:
    code, out, err = agl("run", f"agent.target={file}:agent", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_an_agent_must_be_named(in_folder: Path, agl: Agl) -> None:
    code, _, err = agl("run", "--task", "1")
    assert code == 2
    assert "agent.target" in err
