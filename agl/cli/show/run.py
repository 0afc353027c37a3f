"""A run: how far it is, its settings in brief, its counters with causes, its curve, and where things are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agl.cli.eval_report import report_lines
from agl.cli.lists.resources import in_brief
from agl.cli.run_folder import ENDING_FILE, LOG_FILE, SETTINGS_FILE
from agl.cli.run_state import METRICS_FILE, REPORT_FILE, STOPPED, RunState
from agl.cli.show.plot import Points, plot
from agl.cli.text import age, counted, duration, fields, moment, number, plain, shortened, wrapped
from agl.errors import ConfigError
from agl.evaluation.counts import cause_of
from agl.store.base import LightningStore
from agl.store.paging import iter_rollouts
from agl.types import MetricQuery, NamedResources, RolloutQuery

CURVES = ("train/reward", "val/reward", "search/best_reward", "val/reward_greedy")
"""What is drawn, of what there is, unless others are asked for."""
NODES = ("agent", "data", "algorithm", "policy", "inference", "learner", "runner", "grader", "seed")
"""Of the settings, what is said in brief."""
TELLING = (
    "path",
    "target",
    "function",
    "iterations",
    "rounds",
    "epochs",
    "group_size",
    "learning_rate",
    "model",
)
"""Of a node's values, those that are said first."""
_TOLD_EVERY = 1000
_PLACES = (
    "policy",
    "checkpoints",
    "prompts",
    METRICS_FILE,
    LOG_FILE,
    SETTINGS_FILE,
    REPORT_FILE,
    ENDING_FILE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as its store and its folder have it; what nobody knows is None or empty.

    Args:
        state: how far it is.
        settings: resolved, secrets masked.
        git_commit: of the code.
        counts: rollouts by status.
        causes: of those that failed.
        metrics: points by name, in the order of their steps.
        resources: its newest version.
        report: of an evaluation.
        place: options by which another command finds it in its store, where it has no folder.
    """

    state: RunState
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    git_commit: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    causes: Counter[str] = field(default_factory=Counter[str])
    metrics: Mapping[str, Points] = field(default_factory=dict[str, Points])
    resources: NamedResources | None = None
    report: Mapping[str, Any] | None = None
    place: str = ""


async def counts_of(
    store: LightningStore, run_id: str, *, on_progress: Callable[[str], None]
) -> tuple[dict[str, int], Counter[str]]:
    """Return the run's rollouts by status, and the failed ones by cause."""
    counts = cast("dict[str, int]", (await store.statistics(run_id=run_id))["rollouts"])
    causes: Counter[str] = Counter()
    if counts.get("failed"):
        async for rollout in iter_rollouts(store, RolloutQuery(run_id=run_id, status=("failed",))):
            causes[cause_of(rollout)] += 1
            if causes.total() % _TOLD_EVERY == 0:
                on_progress(f"reading failed rollouts {causes.total():,}/{counts['failed']:,}")
    return counts, causes


async def metrics_of(store: LightningStore, run_id: str) -> dict[str, list[tuple[int, float]]]:
    """Return all numbers of the run by name."""
    found: dict[str, list[tuple[int, float]]] = {}
    query = MetricQuery(run_id=run_id)
    while True:
        page = await store.query_metrics(query)
        for point in page.items:
            found.setdefault(point.name, []).append((point.step, point.value))
        if page.next_cursor is None:
            return found
        query = query.model_copy(update={"cursor": page.next_cursor})


def metrics_of_folder(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the numbers in a run's file of metrics by name; a line that is not whole is passed over."""
    found: dict[str, list[tuple[int, float]]] = {}
    with suppress(OSError), (folder / METRICS_FILE).open("rb") as lines:
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                values = json.loads(line)
                step = int(values.pop("step"))
                values.pop("time", None)
                for name, value in values.items():
                    if isinstance(value, int | float):
                        found.setdefault(name, []).append((step, float(value)))
    return found


def report_of_folder(folder: Path) -> Mapping[str, Any] | None:
    """Return the report of an evaluation that has ended, None where there is none that can be read."""
    with suppress(OSError, ValueError):
        report = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
        if isinstance(report, dict) and "evaluated" in report:
            return cast("Mapping[str, Any]", report)
    return None


def run_lines(record: RunRecord, metrics: Sequence[str], *, now: float, width: int, full: bool) -> list[str]:
    """Return the record for people.

    Args:
        record: what is shown.
        metrics: names of numbers to draw; empty draws the rewards.
        now: the time that ages count from.
        width: columns.
        full: all settings, all numbers.

    Raises:
        ConfigError: the run has no number of such a name.
    """
    curves = _curves(record, metrics, width=width)
    lines = _head(record, now=now, width=width)
    lines += _titled("Settings", _settings_lines(record.settings, width=width, full=full))
    lines += _titled("Rollouts", _count_lines(record, width=width))
    lines += curves
    lines += _titled("Newest numbers", _number_lines(record.metrics, width=width) if full else [])
    lines += _titled("Evaluation", _report_lines(record, width=width))
    lines += _titled("Resources", _version_lines(record.resources, width=width))
    return [*lines, *_titled("Files", _file_lines(record.state.folder)), "", *_next(record)]


def _titled(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}".rstrip() for line in lines)] if lines else []


def _head(record: RunRecord, *, now: float, width: int) -> list[str]:
    state = record.state
    begun, ended = state.created_at, state.finished_at
    times = None if begun is None else f"{moment(begun)}, {age(now - begun)} ago"
    if begun is not None and (ended is not None or state.status == "running"):
        times = f"{times}; took {duration((ended or now) - begun)}"
    reward = None if state.reward is None else number(state.reward)
    held_out = None if state.held_out_reward is None else number(state.held_out_reward)
    status = f"{state.status}{f', {state.stands_at}' if state.stands_at else ''}"
    if state.status == "elsewhere":
        status = "its records are not in its folder: name their store by --store-url"
    return fields(
        [
            ("Run", state.run_id),
            ("Command", f"agl {state.command or '?'}{f', {state.name}' if state.name else ''}"),
            ("Status", status),
            ("Problem", state.problem),
            ("Began", times),
            ("Reward", reward),
            ("Held out", held_out),
            ("Commit", record.git_commit),
        ],
        width=width,
    )


def _settings_lines(settings: Mapping[str, Any], *, width: int, full: bool) -> list[str]:
    if full and settings:
        return wrapped(json.dumps(settings, indent=1, ensure_ascii=False), width=width - 2)
    return fields(
        [
            (name.capitalize(), shortened(_brief(settings[name]), width - 14))
            for name in NODES
            if settings.get(name) is not None
        ],
        width=width - 2,
    )


def _brief(node: Any) -> str:
    """``GRPO iterations=60 group_size=8``: the class of a node and its plain values."""
    if not isinstance(node, Mapping):
        return plain(node)
    values = dict(cast("Mapping[str, Any]", node))
    target = str(values.pop("_target_", "")).rpartition(".")[2]
    first = [name for name in TELLING if name in values]
    said = [
        f"{name}={plain(values[name])}" for name in dict.fromkeys([*first, *values]) if _says(values[name])
    ]
    return " ".join([target, *said]).strip()


def _says(value: Any) -> bool:
    return value is not None and not isinstance(value, Mapping) and value != []


def _count_lines(record: RunRecord, *, width: int) -> list[str]:
    counts = record.counts
    total = sum(counts.values())
    if not total:
        return []
    ended = ("succeeded", "failed", "cancelled")
    parts = [f"{counts.get(status, 0):,} {status}" for status in ended]
    opened = total - sum(counts.get(status, 0) for status in ended)
    lines = wrapped(
        f"{total:,} = {' + '.join(parts)}{f' + {opened:,} open' if opened else ''}", width=width - 2
    )
    if record.causes:
        causes = ", ".join(f"{cause} {count:,}" for cause, count in record.causes.most_common())
        lines += wrapped(f"failed by cause: {causes}", width=width - 2)
    for name in ("without_reward", "without_calls", "untrainable"):
        points = record.metrics.get(f"total/rollouts/{name}")
        if points and points[-1][1]:
            lines.append(f"{name.replace('_', ' ')}: {points[-1][1]:.0f}")
    return lines


def _curves(record: RunRecord, wanted: Sequence[str], *, width: int) -> list[str]:
    """The plot of the rewards together, or one plot of each number that is asked for."""
    for name in wanted:
        if name not in record.metrics:
            known = ", ".join(sorted(record.metrics)) or "none at all"
            raise ConfigError(
                f"--metric {name}: the run {record.state.run_id} has no such number; it has {known}"
            )
    if wanted:
        lines: list[str] = []
        for name in wanted:
            lines += _titled(name, plot({name: record.metrics[name]}, width=width - 2))
            if len(record.metrics[name]) == 1:
                step, value = record.metrics[name][0]
                lines += _titled(name, [f"{number(value)} at step {step}: a curve needs two"])
        return lines
    shown = {name: record.metrics[name] for name in CURVES if name in record.metrics}
    return _titled("Curve", plot(shown, width=width - 2))


def _number_lines(metrics: Mapping[str, Points], *, width: int) -> list[str]:
    pairs = [(name, number(points[-1][1])) for name, points in sorted(metrics.items()) if points]
    longest = max((len(name) for name, _ in pairs), default=0)
    return fields(pairs, width=width - 2, label_width=longest + 2)


def _report_lines(record: RunRecord, *, width: int) -> list[str]:
    if record.report is not None:
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # written by another version
            return report_lines(record.report["evaluated"], mode=str(record.report.get("mode")))
        return wrapped(f"{REPORT_FILE} is not what this version writes", width=width - 2)
    lines: list[str] = []
    for name, points in sorted(record.metrics.items()):
        if name.startswith("val/reward") and points:
            (first, before), (last, after) = points[0], points[-1]
            line = f"{name} {number(after)} at {last}"
            lines += wrapped(
                line + (f" (first {number(before)} at {first})" if last != first else ""), width=width - 2
            )
    return lines


def _version_lines(resources: NamedResources | None, *, width: int) -> list[str]:
    if resources is None:
        return []
    what = ", ".join(f"{name}: {in_brief(one)}" for name, one in sorted(resources.resources.items()))
    return wrapped(f"{resources.resources_id} (the newest): {what}", width=width - 2)


def _file_lines(folder: Path | None) -> list[str]:
    """Where things are; paths are not broken, as they are to be copied."""
    if folder is None:
        return []
    found = [folder / name for name in _PLACES if (folder / name).exists()]
    lines = [str(folder), *(str(path) for path in found)]
    checkpoints = len(list((folder / "checkpoints").glob("iteration-*")))
    return [
        f"{line}  ({counted(checkpoints, 'checkpoint')})" if line.endswith("checkpoints") else line
        for line in lines
    ]


def _next(record: RunRecord) -> list[str]:
    """The commands that go on from here; not wrapped, as they are to be copied."""
    folder = record.state.folder
    if folder is None:
        return [f"agl ls rollouts --run {record.state.run_id} {record.place}".rstrip()]
    command = "eval" if record.state.command == "eval" else "train"
    lines = [f"agl ls rollouts --run-dir {folder}", f"agl logs {folder}"]
    if record.state.status in (STOPPED, "failed", "interrupted"):
        lines.insert(0, f"agl {command} --resume {folder}")
    elif (folder / "policy").is_dir() or (folder / "prompts").is_dir():
        lines.append(f"agl eval --resources {folder}")
    return lines


def run_as_json(record: RunRecord) -> dict[str, Any]:
    """Return the record as plain values."""
    return {
        "kind": "run",
        "run": record.state.as_json(),
        "git_commit": record.git_commit,
        "settings": dict(record.settings),
        "rollouts": dict(record.counts),
        "failed_by_cause": dict(record.causes),
        "metrics": {name: [list(point) for point in points] for name, points in record.metrics.items()},
        "newest_resources_id": None if record.resources is None else record.resources.resources_id,
        "report": record.report,
    }
