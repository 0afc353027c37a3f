"""A real run with a model: replayed without one, fresh from a call, retried, graded anew and cancelled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, blocks
from model_talk import TALK, run_agl, talk_folder, talk_settings
from proxy_processes import scripted_upstream
from store_processes import served

from agl.evaluation.rollouts import spans_of_rollout
from agl.launch.replaying import NOT_COMPARED, span_differences
from agl.store.opening import store_to_read
from agl.store.paging import iter_rollouts
from agl.types import Rollout, Span


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``runs/one``, whose model is gone: task 0 succeeded, task 1 failed."""
    folder = talk_folder(tmp_path_factory.mktemp("talk"))
    with scripted_upstream() as upstream:
        settings = talk_settings(upstream.url)
        code, _, err = run_agl("eval", *settings, "--run-dir", "runs/one", cwd=folder)
    assert code == 0, err
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(recorded, tmp_path, dirs_exist_ok=True)
    return tmp_path


async def rollouts_of(folder: Path) -> list[Rollout]:
    async with store_to_read(str(folder / "runs" / "one")) as store:
        return [one async for one in iter_rollouts(store)]


async def spans_in(folder: Path, rollout_id: str) -> list[Span]:
    async with store_to_read(str(folder / "runs" / "one")) as store:
        return await spans_of_rollout(store, rollout_id)


@pytest.fixture
async def ids(folder: Path) -> tuple[str, str]:
    """Of the rollout that succeeded and of the one that failed."""
    done = {one.status: one.rollout_id for one in await rollouts_of(folder)}
    return done["succeeded"], done["failed"]


def facts(spans: list[Span]) -> list[Any]:
    """What is compared of spans, worked out by itself: names, kinds, ends and attributes, in order."""
    return [
        (
            span.name,
            span.kind,
            span.status.code,
            {name: value for name, value in span.attributes.items() if name not in NOT_COMPARED},
        )
        for span in sorted(spans, key=lambda span: span.start_time_ns)
    ]


async def test_a_replay_with_everything_recorded_asks_no_model_and_gives_identical_spans(
    folder: Path, ids: tuple[str, str]
) -> None:
    code, out, err = run_agl("replay", ids[0], "--json", cwd=folder)  # its model's server has ended
    assert code == 0, err
    found = json.loads(out)
    assert (found["identical"], found["model_calls"], found["replayed_calls"]) == (True, 0, 2)
    assert found["reward"]["after"] == found["reward"]["before"] is not None
    before, after = await spans_in(folder, ids[0]), await spans_in(folder, found["replay_id"])
    assert [span.name for span in sorted(after, key=lambda span: span.start_time_ns)] == [
        "agl.rollout",
        "chat small",
        "agl.message",
        "chat small",
        "agl.message",
        "agl.reward",
    ]
    assert facts(after) == facts(before)
    assert span_differences(before, after) == []
    marks = [span.attributes["agl.replay"] for span in after if span.name == "chat small"]
    assert marks == ["hit", "hit"]


async def test_an_agent_that_asks_something_else_is_stopped_at_that_call_and_no_model_is_asked(
    folder: Path, ids: tuple[str, str]
) -> None:
    code, out, err = run_agl("replay", ids[0], cwd=folder, AGAIN="and less")
    assert code == 1
    assert "call 2 asks something else than the record" in out
    assert "  -user: and more\n  +user: and less\n" in out
    assert "1 of 2 recorded calls replayed, 0 calls to the model" in out
    assert err.startswith(
        "agl: call 2 asks something else than the record: --from-call 2 lets the model answer"
    )
    assert "Traceback" not in err


async def test_from_a_call_on_or_where_the_agent_differs_the_model_answers(
    folder: Path, ids: tuple[str, str]
) -> None:
    with scripted_upstream() as upstream:
        here = f"inference.base_url={upstream.url}"
        second = run_agl("replay", ids[0], "--from-call", "2", here, "--json", cwd=folder)
        every = run_agl("replay", ids[0], "--from-call", "1", here, "--json", cwd=folder)
        other = run_agl(
            "replay", ids[0], "--fresh-on-difference", here, "--json", cwd=folder, AGAIN="and less"
        )
    assert [code for code, _, _ in (second, every, other)] == [0, 0, 0], second[2] + every[2] + other[2]
    reports = [json.loads(out) for _, out, _ in (second, every, other)]
    assert [(one["replayed_calls"], one["model_calls"]) for one in reports] == [(1, 1), (0, 2), (1, 1)]
    assert [[call["number"] for call in one["calls"]] for one in reports] == [[], [], [2]]
    calls = [span for span in await spans_in(folder, reports[0]["replay_id"]) if span.name == "chat small"]
    assert [span.attributes.get("agl.replay") for span in calls] == ["hit", None]


async def test_a_failed_rollout_is_retried_here_with_the_model_of_its_run(
    folder: Path, ids: tuple[str, str]
) -> None:
    (folder / "fixed").touch()
    with scripted_upstream() as upstream:
        code, out, err = run_agl(
            "retry", ids[1], "--here", f"inference.base_url={upstream.url}", "--json", cwd=folder
        )
    assert code == 0, err
    (retried,) = json.loads(out)["retries"]
    assert (retried["retry_id"], retried["status"]) == (f"{ids[1]}-retry-1", "succeeded")
    assert retried["reward"] == len("and more 2") / 100


async def test_recorded_rollouts_are_graded_anew_with_all_that_a_grader_gets(
    folder: Path, ids: tuple[str, str]
) -> None:
    code, out, err = run_agl("regrade", "--grader", "talk.py:strict", "--write", "--json", cwd=folder)
    assert code == 0, err
    found = json.loads(out)
    assert (found["graded"], found["changed"], found["not_graded"]) == (1, 1, {"failed": 1})
    assert found["rollouts"][0]["after"] == 2.0
    written = [span for span in await spans_in(folder, ids[0]) if span.name == "agl.regrade"]
    assert [span.attributes["agl.reward.value"] for span in written] == [2.0]
    again = json.loads(run_agl("replay", ids[0], "--json", cwd=folder)[1])
    assert again["identical"]


async def test_in_a_served_store_rollouts_are_replayed_retried_and_cancelled_by_its_url(
    folder: Path, ids: tuple[str, str]
) -> None:
    with served(f"store.path={folder}/runs/one/store.sqlite", "--port", "0", folder=folder) as store:
        url = ("--store-url", store.url)
        code, out, err = run_agl("replay", ids[0], *url, "--json", cwd=folder)
        assert code == 0, err
        assert json.loads(out)["identical"]
        code, out, err = run_agl("retry", ids[1], *url, cwd=folder)
        assert code == 0, err
        assert "no runner is at work on the store: start one with agl runner" in " ".join(out.split())
        code, out, err = run_agl("cancel", "--run", "one", "--yes", *url, cwd=folder)
        assert code == 0, err
        assert out.splitlines()[1].split() == [f"{ids[1]}-retry-1", "pending", "cancelled"]
        code, _, err = run_agl("cancel", f"{ids[1]}-retry-1", cwd=folder)
        assert code == 1
        assert f"give --store-url {store.url}" in err


async def test_every_command_of_the_page_works(folder: Path, ids: tuple[str, str]) -> None:
    page = ROOT / "docs" / "replay.md"
    (grader,) = blocks(page, "python")
    (folder / "my_grader.py").write_text(grader)
    (folder / "my_agent.py").write_text(f"{TALK}\n\nfixed = agent\n")
    (folder / "fixed").touch()
    for name in ("first.txt", "second.txt"):
        (folder / name).write_text("same")
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if "--store-url" not in line]
    assert len(lines) > 10
    with scripted_upstream() as upstream:
        for line in lines:
            words = [
                {"ROLLOUT": ids[0], "FAILED": ids[1], "RUN": "one"}.get(word, word) for word in line.split()
            ]
            fresh = [f"inference.base_url={upstream.url}"] if {"--from-call", "--here"} & set(words) else []
            code, _, err = run_agl(*words[1:], *fresh, cwd=folder)
            assert code == 0, (line, err)
