"""What ``agl replay`` says: the reward then and now, what was replayed, and everything that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agl.cli.text import counted, fields, number, plain, shortened, wrapped
from agl.launch.replaying import CallDifference, Likeness, SpanDifference
from agl.types import Rollout

SHOWN = 5
"""Calls and spans that differ; ``--json`` has all."""
TRANSCRIPT_LINES = 40
"""Of what differs in the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replay.

    Args:
        before: the rollout as it is recorded.
        after: the new one.
        likeness: of their spans.
        model_calls: that a model was asked.
        from_call: the first call that the model was to answer; None is none.
        where: the new one is recorded.
    """

    before: Rollout
    after: Rollout
    likeness: Likeness
    model_calls: int
    from_call: int | None
    where: str

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        error = self.after.error
        return {
            "rollout_id": self.before.rollout_id,
            "replay_id": self.after.rollout_id,
            "run_id": self.after.run_id,
            "store": self.where,
            "from_call": self.from_call,
            "status": {"before": self.before.status, "after": self.after.status},
            "reward": {"before": self.before.reward, "after": self.after.reward},
            "dimensions": {"before": self.before.reward_dimensions, "after": self.after.reward_dimensions},
            "error": None if error is None else error.model_dump(exclude={"traceback"}),
            "recorded_calls": self.likeness.num_calls,
            "replayed_calls": self.likeness.replayed,
            "model_calls": self.model_calls,
            "identical": self.likeness.identical,
            "calls": [asdict(one) for one in self.likeness.calls],
            "spans": [asdict(one) for one in self.likeness.spans],
            "transcript": self.likeness.transcript,
        }


def lines_of(found: Replayed, width: int) -> list[str]:
    """Return the report for people."""
    like, after = found.likeness, found.after
    calls = f"{like.replayed} of {like.num_calls} recorded calls replayed"
    calls += f", {counted(found.model_calls, 'call')} to the model"
    spans = "identical, but for ids and times" if like.identical else _sides(like.spans)
    ended: str = (
        after.status if after.error is None else f"failed: {after.error.cause}: {after.error.message}"
    )
    lines = fields(
        [
            ("Replay", after.rollout_id),
            ("Of", found.before.rollout_id),
            ("Ended", f"{ended} (then {found.before.status})"),
            ("Reward", f"{number(after.reward)} (then {number(found.before.reward)})"),
            ("Calls", calls),
            ("Spans", spans),
        ],
        width=width,
    )
    lines += _calls(like.calls, width)
    if like.spans:
        lines += ["", *(_span(one, width) for one in like.spans[:SHOWN]), *_more(len(like.spans), "span")]
    if like.transcript:
        lines += ["", "The conversation"]
        lines += _diff(like.transcript[:TRANSCRIPT_LINES], width)
        if len(like.transcript) > TRANSCRIPT_LINES:
            lines.append(f"  ... and {len(like.transcript) - TRANSCRIPT_LINES} more lines (--json has all)")
    return lines


def _calls(calls: Sequence[CallDifference], width: int) -> list[str]:
    lines: list[str] = []
    for one in calls[:SHOWN]:
        agent = "" if one.agent is None else f" (agent {plain(one.agent)})"
        lines += ["", *wrapped(f"{one.why}{agent}", width=width), *_diff(one.lines, width)]
    return [*lines, *_more(len(calls), "call")]


def _diff(lines: Sequence[str], width: int) -> list[str]:
    """A diff, each of its lines cut to the terminal."""
    return [shortened_line(line, width) for line in lines if not line.startswith(("---", "+++"))]


def shortened_line(line: str, width: int) -> str:
    """Return a line of a diff, indented, with its sign and its own indentation, cut to the terminal."""
    text = "".join(sign if sign.isprintable() else " " for sign in line)
    return f"  {text}" if len(text) <= width - 2 else f"  {text[: width - 5]}..."


def _sides(spans: Sequence[SpanDifference]) -> str:
    mine = sum(one.side == "replay" for one in spans)
    return f"{counted(mine, 'span')} of the replay and {len(spans) - mine} of the record differ"


def _span(one: SpanDifference, width: int) -> str:
    what = f"differs in {', '.join(one.attributes)}" if one.attributes else "has no like on the other side"
    return f"  {shortened(f'{one.side}: {one.name} {what}', width - 2)}"


def _more(count: int, noun: str) -> list[str]:
    return [f"  ... and {counted(count - SHOWN, f'more {noun}')} (--json has all)"] if count > SHOWN else []
