"""agl trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Agl
from listed_records import NOON, listed_store, made_call, made_span
from snapshots import WIDTHS, require_snapshot

from agl.cli.text import columns_of
from agl.cli.trace import trace_lines
from agl.types import Attempt, Rollout, RolloutRequest, Span, SpanEvent

ID = "2026-09-21_12-00-00-ppo_sql-val-0"
OF = {"rollout_id": ID, "attempt_id": "at-2"}
ROLLOUT = Rollout(rollout_id=ID, task=1, created_at=NOON)
ATTEMPT = Attempt(
    attempt_id="at-2",
    rollout_id=ID,
    sequence_id=2,
    status="failed",
    started_at=NOON,
    last_heartbeat_at=NOON,
)


def spans() -> list[Span]:
    """An agent that calls a model and a tool, waits a second, and fails; one span came without its parent."""
    asked = [{"role": "user", "content": "2+2?"}]
    exception = SpanEvent(
        name="exception",
        time_ns=int((NOON + 2.9) * 1e9),
        attributes={"exception.type": "KeyError", "exception.stacktrace": "Traceback:\n  line 1"},
    )
    failed = made_span(
        5, "tool.search", parent=4, at=2.5, seconds=0.4, error="KeyError: no such room \x1b[2J", **OF
    ).model_copy(update={"events": (exception,)})
    return [
        made_span(1, "agl.rollout", at=0, seconds=4.0, agl__agent="booking_agent", agl__mode="val", **OF),
        made_call(2, asked, {"role": "assistant", "content": "4"}, at=0.05, seconds=0.75, **OF),
        made_call(3, asked, None, at=0.9, seconds=0.25, error="upstream 502: " + "out of memory " * 12, **OF),
        made_span(4, "plan", parent=1, at=2.4, seconds=1.0, attempt_number=1, **OF),
        failed,
        made_span(6, "lost.child", parent=99, at=3.45, seconds=None, **OF),
        made_span(7, "agl.reward", parent=1, at=3.5, seconds=0.0, agl__reward__value=0.5, **OF),
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_tree_shows_times_errors_gaps_and_spans_without_their_parent(width: int) -> None:
    lines = trace_lines(ROLLOUT, ATTEMPT, spans(), num_attempts=2, width=width, full=False)
    assert max(columns_of(line) for line in lines) <= width
    require_snapshot(f"trace_{width}", lines)


def test_all_attributes_and_events_are_shown_where_all_is_asked_for() -> None:
    lines = trace_lines(ROLLOUT, ATTEMPT, spans(), num_attempts=2, width=80, full=True)
    assert f"{'':21}agl.agent = booking_agent" in lines
    assert lines[lines.index(f"{'':21}event at 2.90s: exception") + 1 :][:3] == [
        f"{'':21}  exception.type = KeyError",
        f"{'':21}  exception.stacktrace = Traceback:",
        f"{'':21}  line 1",
    ]


def test_without_attempts_or_spans_it_says_so() -> None:
    assert trace_lines(ROLLOUT, None, [], num_attempts=0, width=80, full=False)[-1] == (
        "No attempt yet: it waits in the queue"
    )
    lines = trace_lines(ROLLOUT, ATTEMPT, [], num_attempts=1, width=80, full=False)
    assert lines[-1].startswith("No spans: ")


def test_a_trace_thousands_of_spans_deep_still_fits() -> None:
    deep = [
        made_span(number + 1, "step", parent=number or None, at=number / 1000, seconds=0.001, **OF)
        for number in range(2000)
    ]
    lines = trace_lines(ROLLOUT, ATTEMPT, deep, num_attempts=1, width=80, full=False)
    assert (sum("step" in line for line in lines), max(map(len, lines)) <= 80) == (2000, True)


@pytest.fixture
async def folder(in_folder: Path) -> Path:
    """A run with a rollout of one attempt and one span."""
    folder = in_folder / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text("name: demo\n")
    store, _ = listed_store(folder / "store.sqlite")
    async with store:
        await store.add_run(name="demo", run_id="one")
        await store.start_rollout(RolloutRequest(task=1, rollout_id="one-0", run_id="one"))
        await store.add_span(made_span(1, "work", rollout_id="one-0", attempt_id="at-1"))
    return folder


@pytest.mark.parametrize("wanted", [["one-0"], ["one-0", "--attempt", "1"], ["at-1"]])
def test_a_rollout_or_attempt_is_traced(agl: Agl, folder: Path, wanted: list[str]) -> None:
    code, out, err = agl("trace", *wanted)
    assert (code, err) == (0, "")
    assert "0ms   1.00s   work" in out
    values = json.loads(agl("trace", *wanted, "--json")[1])
    assert (values["rollout_id"], values["attempt_id"]) == ("one-0", "at-1")
    assert Span.model_validate(values["spans"][0]).name == "work"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one-1"], "no rollout or attempt is called 'one-1'"),
        (["one"], "no rollout or attempt is called 'one'"),
        (["one-0", "--attempt", "2"], "it has 1 (at-1)"),
        (["at-1", "--attempt", "1"], "at-1 is an attempt already"),
        (["one-0", "--run-dir", "lost"], "there is no run lost"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(agl: Agl, folder: Path, arguments: list[str], message: str) -> None:
    code, out, err = agl("trace", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
