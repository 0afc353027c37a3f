"""agl replay: a recorded rollout again, in process; with real model calls in tests/integration/test_replay.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from command_line import Agl
from recorded_folder import recorded_folder

from agl.cli.replay import Options
from agl.store.opening import store_to_read
from agl.store.sqlite import SqliteLightningStore
from agl.types import PromptTemplate, Rollout


@pytest.fixture
def run(in_folder: Path) -> Path:
    """A run with a rollout that succeeded, one that failed and one that waits."""
    return asyncio.run(recorded_folder(in_folder, [2, 3], waiting=1))


def rollout(run: Path, rollout_id: str) -> Rollout:
    async def look() -> Rollout:
        async with store_to_read(str(run)) as store:
            return await store.get_rollout_by_id(rollout_id)

    return asyncio.run(look())


def test_the_record_answers_all_unless_a_call_or_a_difference_is_named() -> None:
    assert Options(rollout_id="r").record_only
    assert not Options(rollout_id="r", from_call=3).record_only
    assert not Options(rollout_id="r", fresh_on_difference=True).record_only


def test_a_replay_is_a_rollout_of_its_own_that_names_its_record(run: Path, agl: Agl) -> None:
    code, out, err = agl("replay", "one-0", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["rollout_id"], found["identical"], found["model_calls"]) == ("one-0", True, 0)
    assert found["reward"] == {"before": 1.0, "after": 1.0}
    new = rollout(run, found["replay_id"])
    assert new.metadata == {"seed": 7, "replay_of": "one-0", "replay_strict": True}
    assert (new.mode, new.group_id, new.run_id) == ("val", None, found["run_id"])
    assert rollout(run, "one-waits-0").status == "pending"


def test_a_failed_rollout_fails_again_and_that_is_what_was_asked_for(run: Path, agl: Agl) -> None:
    code, out, _ = agl("replay", "one-1")
    lines = out.splitlines()
    assert code == 0
    assert lines[2:] == [
        "Ended       failed: ValueError: 3 is odd (then failed)",
        "Reward      - (then -)",
        "Calls       0 of 0 recorded calls replayed, 0 calls to the model",
        "Spans       identical, but for ids and times",
    ]


def test_an_agent_that_was_changed_shows_in_what_it_does_otherwise(
    run: Path, agl: Agl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAID", "!")
    code, out, _ = agl("replay", "one-0")
    assert code == 0
    assert "Spans       1 span of the replay and 1 of the record differ" in out
    assert "  record: agl.message differs in agl.message.body" in out


def test_a_replay_that_fails_where_the_rollout_had_not_is_a_failure(run: Path, agl: Agl) -> None:
    Path("broken.py").write_text("def agent(task):\n    raise RuntimeError('broken')\n")
    code, out, err = agl("replay", "one-0", "agent.target=broken.py:agent")
    assert code == 1
    assert "Ended       failed: RuntimeError: broken (then succeeded)" in out
    assert err == "agl: the replay failed, and the rollout had not: RuntimeError: broken\n"


def test_the_agent_gets_other_resources_by_their_id_and_by_a_runs_folder(run: Path, agl: Agl) -> None:
    async def add() -> None:
        async with SqliteLightningStore(str(run / "store.sqlite")) as store:
            await store.add_resources({"prompt": PromptTemplate(template="try")}, resources_id="other")

    asyncio.run(add())
    (run / "prompts").mkdir()
    best = {"prompts": {"prompt": {"kind": "prompt_template", "template": "best"}}}
    (run / "prompts" / "best.json").write_text(json.dumps(best))
    bodies: list[str] = []
    for who in ("other", "one"):
        code, out, err = agl("replay", "one-0", "--resources", who, "--json")
        assert code == 0, err
        resources_id = rollout(run, json.loads(out)["replay_id"]).resources_id

        async def look(wanted: str | None = resources_id) -> str:
            async with store_to_read(str(run)) as store:
                prompt = (await store.get_resources_by_id(str(wanted))).resources["prompt"]
                assert isinstance(prompt, PromptTemplate)
                return prompt.template

        bodies.append(asyncio.run(look()))
    assert bodies == ["try", "best"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one-9"], "no rollout is called 'one-9' in runs/one/store.sqlite; did you mean"),
        (["one-waits-0"], "rollout one-waits-0 is pending: wait for its end, or end it with agl cancel"),
        (["one-0", "--from-call", "2"], "--from-call 2: rollout one-0 has 0 recorded calls; give 1 to 1"),
        (["one-0", "--resources", "nobody"], "there is no run nobody and no resources of that id"),
        (["one-0", "agent.targett=x"], "agent.targett"),
        (["one-0", "--config-dir", "."], "--config-dir: the settings are those of runs/one"),
        (["one-0", "+recipe=nothing"], "nothing"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_runs(
    arguments: list[str], message: str, run: Path, agl: Agl
) -> None:
    code, out, err = agl("replay", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_without_the_settings_of_its_run_it_says_what_to_give(run: Path, agl: Agl) -> None:
    (run / "store.sqlite").rename("elsewhere.sqlite")
    (run / "settings.yaml").unlink()
    code, _, err = agl("replay", "one-0", "--run-dir", "elsewhere.sqlite")
    assert code == 2
    assert (
        "(looked for runs/one/settings.yaml): say what runs it with +recipe=NAME or agent.target=FILE.py:NAME"
        in err
    )


def test_a_rollout_whose_spans_are_gone_cannot_be_replayed(run: Path, agl: Agl) -> None:
    async def forget() -> None:
        async with SqliteLightningStore(str(run / "store.sqlite")) as store:
            await store.delete_spans(finished_before=1e12)

    asyncio.run(forget())
    code, _, err = agl("replay", "one-0")
    assert code == 2
    assert "rollout one-0 has no spans: it never ran, or they were deleted (agl store gc)" in err
