"""``agl eval`` from outside: what it measures, prints, leaves in the store, and survives."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from awaited import soon
from doc_pages import ROOT, blocks
from eval_processes import LIGHT, light_folder, run_eval, start_eval
from proxy_processes import scripted_upstream
from store_processes import served
from train_processes import SMALL, finished, start_train

from agl.config import compose
from agl.errors import ConfigError, StoreError
from agl.store.client import LightningStoreClient
from agl.store.opening import store_to_read
from agl.store.paging import iter_rollouts
from agl.types import PromptTemplate, RolloutQuery

CHATTY = """
from openai import AsyncOpenAI

async def agent(task, llm):
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        answer = await client.chat.completions.create(
            model=llm.model, messages=[{"role": "user", "content": f"say {task['n']}"}]
        )
    return float(answer.choices[0].message.content.startswith(f"say {task['n']}"))
"""


def report_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "evaluation.json").read_text())


def rewards_of(side: dict[str, Any]) -> list[list[float]]:
    return [[run["reward"] for run in task["runs"]] for task in side["tasks"]]


async def done(run: Path, number: int) -> None:
    """Return once so many rollouts of a run have ended."""

    async def look() -> bool:
        try:
            async with store_to_read(str(run)) as store:
                found = await store.query_rollouts(RolloutQuery(status=("succeeded", "failed")))
        except (ConfigError, StoreError):  # it is being made
            return False
        return len(found.items) >= number

    await soon(look, what=f"{number} ended rollouts", seconds=120)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished small run ``runs/one``, a checkpoint behind each of its two iterations."""
    folder = tmp_path_factory.mktemp("trained")
    small = [*SMALL, "algorithm.iterations=2", "algorithm.save_every=1", "data.num_val=2"]
    code, _, err = finished(start_train(Path("runs/one"), *small, cwd=folder))
    assert code == 0, err
    return folder


def test_a_trained_policy_is_compared_with_the_one_it_began_with(trained: Path) -> None:
    code, out, err = run_eval(
        "+recipe=ppo_sql", "--against", "base", "--limit", "4", "-k", "2", "--run-dir", "runs/a", cwd=trained
    )
    assert code == 0, err
    report = report_of(trained / "runs" / "a")
    first, second, comparison = report["evaluated"], report["against"], report["comparison"]
    assert (first["contestant"], report["mode"]) == ("runs/one", "test")
    assert second["contestant"].startswith("base (")
    assert first["rollouts"]["succeeded"] == second["rollouts"]["succeeded"] == 8
    means = [[fmean(rewards) for rewards in rewards_of(side)] for side in (first, second)]
    assert first["reward"]["mean"] == pytest.approx(fmean(means[0]))
    difference = fmean(a - b for a, b in zip(*means, strict=True))
    assert comparison["difference"]["mean"] == pytest.approx(difference)
    assert first["usage"]["output_tokens"] > 0
    for line in (
        "Evaluated   runs/one",
        "Tasks       4 test tasks, 2 times each",
        "pass@2",
        "Difference",
        "Cost",
    ):
        assert line in out


async def test_a_version_is_evaluated_from_its_checkpoint_and_the_last_one_is_the_policy(
    trained: Path,
) -> None:
    async with store_to_read(str(trained / "runs" / "one")) as store:
        named = [one.resources_id for one in (await store.list_resources()).items]
    first = next(name for name in named if name.startswith("one-train-v1-"))
    last = next(name for name in named if name.startswith("one-val-reward-v2-"))
    arguments = [
        "+recipe=ppo_sql",
        "--limit",
        "3",
        "--resources",
        last,
        "--against",
        first,
        "--run-dir",
        "runs/b",
    ]
    code, _, err = run_eval(*arguments, cwd=trained)
    assert code == 0, err
    code, _, err = run_eval("--resources", "one", "--limit", "3", "--run-dir", "runs/c", cwd=trained)
    assert code == 0, err
    version, run = report_of(trained / "runs" / "b"), report_of(trained / "runs" / "c")
    assert rewards_of(version["evaluated"]) == rewards_of(run["evaluated"])
    assert version["evaluated"]["usage"]["output_tokens"] == run["evaluated"]["usage"]["output_tokens"]
    assert (trained / "runs" / "b" / "policies" / "one-iteration-000001" / "model.safetensors").is_file()
    async with store_to_read(str(trained / "runs" / "b")) as store:
        resources = await store.get_resources_by_id(version["evaluated"]["resources_id"])
    assert resources.resources["policy_weights"].path == "runs/one/policy"  # type: ignore[union-attr]
    assert resources.resources["policy_weights"].policy_version == 2  # type: ignore[union-attr]


def test_an_unfinished_run_is_evaluated_from_its_newest_checkpoint(trained: Path) -> None:
    (trained / "runs" / "one" / "policy").rename(trained / "kept")
    try:
        code, _, err = run_eval("--resources", "one", "--limit", "3", "--run-dir", "runs/d", cwd=trained)
    finally:
        (trained / "kept").rename(trained / "runs" / "one" / "policy")
    assert code == 0, err
    code, _, err = run_eval(
        "+recipe=ppo_sql", "--limit", "3", "--against", "runs/d", "--run-dir", "runs/e", cwd=trained
    )
    assert code == 0, err
    report = report_of(trained / "runs" / "e")
    assert rewards_of(report["evaluated"]) == rewards_of(report["against"])
    assert report["comparison"]["difference"]["p_value"] == 1.0


async def test_chosen_prompts_are_compared_with_the_first_ones(tmp_path: Path) -> None:
    small = [
        "algorithm.beam_rounds=1",
        "algorithm.beam_width=1",
        "algorithm.branch_factor=2",
        "algorithm.val_batch_size=4",
        "data.num_train=12",
        "data.num_val=4",
        "metrics.console=plain",
    ]
    code, _, err = finished(start_train(Path("runs/one"), "+recipe=apo_rooms", *small, cwd=tmp_path))
    assert code == 0, err
    code, _, err = run_eval(
        "+recipe=apo_rooms", "data.num_val=6", "--against", "base", "--run-dir", "runs/a", cwd=tmp_path
    )
    assert code == 0, err
    report = report_of(tmp_path / "runs" / "a")
    best = json.loads((tmp_path / "runs" / "one" / "prompts" / "best.json").read_text())
    async with store_to_read(str(tmp_path / "runs" / "a")) as store:
        used = await store.get_resources_by_id(report["evaluated"]["resources_id"])
    prompt = used.resources["prompt_template"]
    assert isinstance(prompt, PromptTemplate)
    assert prompt.template == best["prompts"]["prompt_template"]["template"]
    assert report["comparison"]["difference"]["num_tasks"] == 6


def test_json_has_standard_output_for_itself_and_a_low_reward_is_one_line_and_code_one(
    tmp_path: Path,
) -> None:
    light_folder(tmp_path)
    code, out, err = run_eval(
        *LIGHT, "--json", "--fail-under", "0.7", "--run-dir", "e", cwd=tmp_path, SHIFT="0.25"
    )
    assert code == 1
    assert err.splitlines()[-1] == "agl: --fail-under 0.7: the mean reward 0.625 is below it"
    assert "Traceback" not in err
    found = json.loads(out)
    assert found == report_of(tmp_path / "e")
    assert found["evaluated"]["reward"]["mean"] == 0.625
    assert found["evaluated"]["dimensions"]["form"]["mean"] == 0.5
    assert found["evaluated"]["pass_at"]["1"]["mean"] == 0.5
    enough = run_eval(*LIGHT, "--fail-under", "0.5", "--json", "--run-dir", "f", cwd=tmp_path)
    assert (enough[0], json.loads(enough[1])["run_id"]) == (0, "f")


async def test_an_earlier_evaluation_is_compared_with_and_flips_name_rollouts_that_exist(
    tmp_path: Path,
) -> None:
    light_folder(tmp_path)
    assert run_eval(*LIGHT, "--run-dir", "runs/old", cwd=tmp_path)[0] == 0
    code, out, err = run_eval(
        *LIGHT, "--against", "runs/old", "--run-dir", "runs/new", cwd=tmp_path, SHIFT="1", FAILS="5"
    )
    assert code == 0, err
    report = report_of(tmp_path / "runs" / "new")
    gained = report["comparison"]["gained"]
    assert sorted(flip["task"]["n"] for flip in gained) == [0, 2, 4]
    assert (report["comparison"]["lost"], report["comparison"]["unpaired"]) == ([], 1)
    assert "Failed      ValueError 1 (not in the mean)" in out
    for name, side in (("new", "first"), ("old", "second")):
        async with store_to_read(str(tmp_path / "runs" / name)) as store:
            for flip in gained:
                rollout = await store.get_rollout_by_id(flip[f"{side}_rollout_id"])
                assert (rollout.task, rollout.reward) == (flip["task"], flip[side])
                assert rollout.rollout_id in out


async def test_a_killed_evaluation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    light_folder(tmp_path, waits=True)
    process = start_eval(*LIGHT, "-k", "2", "--run-dir", "runs/e", cwd=tmp_path)
    await done(tmp_path / "runs" / "e", 10)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (tmp_path / "go").touch()
    code, out, err = run_eval("--resume", cwd=tmp_path)
    assert code == 0, err
    assert "Rollouts    12 = 12 succeeded" in out
    ran = Counter((tmp_path / "ran").read_text().split())
    assert [ran[str(number)] for number in range(5)] == [2] * 5
    assert ran["5"] == 4  # those that waited
    again = run_eval("--resume", "e", cwd=tmp_path)
    assert again[0] == 0
    assert Counter((tmp_path / "ran").read_text().split()) == ran


async def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    light_folder(tmp_path, waits=True)
    process = start_eval(*LIGHT, "--run-dir", "runs/e", cwd=tmp_path)
    await done(tmp_path / "runs" / "e", 5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "agl: interrupted (go on with: agl eval --resume runs/e)"


def test_too_many_failures_stop_it_and_a_resume_tries_them_again(tmp_path: Path) -> None:
    light_folder(tmp_path)
    code, out, err = run_eval(*LIGHT, "--run-dir", "runs/e", cwd=tmp_path, FAILS="0 1 2 3")
    assert (code, out) == (1, "")
    assert "4 of 6 rollouts of base" in err.splitlines()[-1]
    assert "the first: ValueError: cannot do it" in err.splitlines()[-1]
    code, out, err = run_eval("--resume", cwd=tmp_path)
    assert code == 0, err
    assert "Reward      0.500" in out


async def test_records_are_kept_in_a_store_that_is_served_and_shared(tmp_path: Path) -> None:
    light_folder(tmp_path)
    with served("store=memory", folder=tmp_path) as at:
        for name, shift in (("old", "0"), ("new", "1")):
            against = ["--against", "runs/old"] if name == "new" else []
            code, out, err = run_eval(
                *LIGHT,
                *against,
                "--store-url",
                at.url,
                "--run-dir",
                f"runs/{name}",
                cwd=tmp_path,
                SHIFT=shift,
            )
            assert code == 0, err
            assert not (tmp_path / "runs" / name / "store.sqlite").exists()
        async with LightningStoreClient(at.url) as store:
            rewards = {
                name: [one.reward async for one in iter_rollouts(store, RolloutQuery(run_id=name))]
                for name in ("old", "new")
            }
            runs = {run.run_id: (run.command, run.status) for run in (await store.query_runs()).items}
    assert (sum(rewards["old"]), sum(rewards["new"])) == (3.0, 6.0)
    assert runs == {"old": ("eval", "succeeded"), "new": ("eval", "succeeded")}
    assert "Passed by base (no model) alone: 3" in out


def test_any_model_behind_an_openai_compatible_url_is_a_contestant(tmp_path: Path) -> None:
    light_folder(tmp_path)
    (tmp_path / "asks.py").write_text(CHATTY)
    with scripted_upstream() as upstream:
        model = [
            "inference=external",
            f"inference.base_url={upstream.url}",
            "agent.target=asks.py:agent",
        ]
        priced = "proxy.prices={small: {input: 1.0, output: 2.0}}"
        first = run_eval(*LIGHT, *model, "inference.model=large", "--run-dir", "runs/large", cwd=tmp_path)
        second = run_eval(
            *LIGHT, *model, "inference.model=small", priced, "--against", "runs/large", "--json", cwd=tmp_path
        )
    assert first[0] == 0, first[2]
    assert "Evaluated   base (large)" in first[1]
    assert "Cost        unknown" in first[1]
    assert second[0] == 0, second[2]
    report = json.loads(second[1])
    assert report["against"]["contestant"] == "base (large) in runs/large"
    usage = report["evaluated"]["usage"]
    assert (usage["calls"], usage["input_tokens"], usage["output_tokens"]) == (6, 18, 12)
    assert usage["cost_usd"] == pytest.approx(6 * (3 * 1.0 + 2 * 2.0) / 1e6)
    assert report["comparison"]["difference"]["mean"] == 0.0


def test_every_command_of_the_page_has_settings_that_exist(tmp_path: Path) -> None:
    lines = [line for block in blocks(ROOT / "docs" / "eval.md", "sh") for line in block.splitlines()]
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("agl eval +")]
    assert len(commands) > 4
    for command in commands:
        shown = [word for word in command if word != "--json"]
        code, _, err = run_eval(*shown, "--cfg", cwd=tmp_path)
        assert (code, err) == (0, ""), command


def test_every_setting_of_the_pages_table_has_the_default_that_it_says() -> None:
    page = (ROOT / "docs" / "eval.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`evaluation\.(\w+)`", page)) - {"json"}
    values = compose("eval", ["+recipe=ppo_sql"]).values
    assert named <= set(values["evaluation"])
    assert (values["evaluation"]["threshold"], values["evaluation"]["max_bad_fraction"]) == (1.0, 0.5)
    assert values["evaluation"]["temperature"] == values["algorithm"]["temperature"]
    assert values["evaluation"]["max_tokens"] == values["algorithm"]["max_tokens"]
