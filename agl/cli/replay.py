"""agl replay: a recorded rollout again, its model calls answered from the record up to a call, fresh from there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from agl.cli.changed_records import place_of, rollout_named, to_change
from agl.cli.contestants import BASE, Choice, chosen, with_choice
from agl.cli.progress import Progress
from agl.cli.replay_report import Replayed, lines_of
from agl.cli.rerun_settings import recorded_choice, rerun_parts, rerun_settings
from agl.cli.text import counted, say, say_json, terminal_width
from agl.cli.train import tune_process
from agl.config import Settings, build, masked
from agl.errors import ConfigError, NotFoundError, RunStoppedError
from agl.evaluation.counts import first_cause
from agl.evaluation.rollouts import spans_of_rollout
from agl.launch.evaluation import usage_of
from agl.launch.replaying import likeness
from agl.launch.rerun import Rerun, Wanted
from agl.launch.stopping import run_interruptibly
from agl.proxy.replays import recording_of
from agl.store.base import LightningStore
from agl.store.lifecycle import is_terminal
from agl.types import Json, ProxyLLM, Resource, Rollout, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line of ``agl replay``."""

    rollout_id: str
    overrides: Sequence[str] = ()
    from_call: int | None = None
    resources: str | None = None
    fresh_on_difference: bool = False
    store_url: str | None = None
    run_dir: str | None = None
    config_dir: Path | None = None
    as_json: bool = False

    @property
    def record_only(self) -> bool:
        """Whether the record must answer every call."""
        return self.from_call is None and not self.fresh_on_difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is replayed.

    Args:
        rollout: as it is recorded.
        spans: of its newest attempt.
        resources: what its agent got.
        other: what the agent gets instead, by the id that was given; None where nothing or something else was.
        choice: the model that answers fresh calls, where it is not the settings' own.
        settings: of the run that had it.
    """

    rollout: Rollout
    spans: Sequence[Span]
    resources: Mapping[str, Resource] = field(default_factory=dict[str, Resource])
    other: Mapping[str, Resource] | None = None
    choice: Choice | None = None
    settings: Settings


def main(options: Options) -> None:
    """Replay and print.

    Raises:
        ConfigError: no such rollout, nothing to replay, or a mistake in the settings.
        StoreError: the store is another process's.
        RunStoppedError: a call differs from the record, or the replay failed where the rollout had not.
    """
    if options.from_call is not None and options.from_call < 1:
        raise ConfigError(f"--from-call {options.from_call}: calls are counted from 1")
    with redirect_stdout(sys.stderr), Progress(sys.stderr, "replaying") as progress:
        progress.draw("starting")  # libraries and weights take their time
        place = asyncio.run(
            place_of(options.rollout_id, options.store_url, options.run_dir, kinds=("rollout",))
        )
        recorded = asyncio.run(_recorded(options, place))
        found = _replayed(options, recorded, place, progress)
    if options.as_json:
        say_json(found.as_json())
    else:
        say(lines_of(found, terminal_width()))
    _refuse_differences(options, found)


async def _recorded(options: Options, place: str | None) -> Recorded:
    """Read the record, and what answers the calls that it does not."""
    async with to_change(options.store_url, place) as store:
        rollout = await rollout_named(store, options.rollout_id)
        spans = await _checked(store, rollout, options.from_call)
        resources: Mapping[str, Resource] = {}
        if rollout.resources_id is not None:
            resources = await _resources(store, rollout.resources_id, rollout) or {}
        other, choice = None, None
        if options.resources is not None:
            other = await _resources(store, options.resources, None)
        if not options.record_only and (other is not None or options.resources is None):
            named = options.resources if other is not None else None
            choice = await recorded_choice(store, rollout, place, resources_id=named)
        settings = rerun_settings(rollout, place, options.overrides, config_dir=options.config_dir)
        return Recorded(
            rollout=rollout, spans=spans, resources=resources, other=other, choice=choice, settings=settings
        )


async def _checked(store: LightningStore, rollout: Rollout, from_call: int | None) -> Sequence[Span]:
    """Return the spans of a rollout that can be replayed."""
    what = f"rollout {rollout.rollout_id}"
    if not is_terminal(rollout.status):
        raise ConfigError(f"{what} is {rollout.status}: wait for its end, or end it with agl cancel")
    try:
        spans = await spans_of_rollout(store, rollout.rollout_id)
    except NotFoundError:
        spans = []
    if not spans:
        raise ConfigError(
            f"{what} has no spans: it never ran, or they were deleted (agl store gc); agl retry runs its task anew"
        )
    num_calls = sum(map(len, recording_of(spans).values()))
    if from_call is not None and from_call > num_calls + 1:
        raise ConfigError(
            f"--from-call {from_call}: {what} has {counted(num_calls, 'recorded call')}; give 1 to {num_calls + 1}"
        )
    return spans


async def _resources(
    store: LightningStore, resources_id: str, rollout: Rollout | None
) -> Mapping[str, Resource] | None:
    """What resources hold; None where there are none of that id, an error where the rollout had them."""
    try:
        return (await store.get_resources_by_id(resources_id)).resources
    except NotFoundError as error:
        if rollout is None:
            return None
        raise ConfigError(
            f"the store has no resources {resources_id}, which rollout {rollout.rollout_id} had: they were deleted"
        ) from error


def _replayed(options: Options, recorded: Recorded, place: str | None, progress: Progress) -> Replayed:
    settings, choice = recorded.settings, recorded.choice
    if options.resources is not None and recorded.other is None:
        choice = chosen(options.resources, settings, store=None) if options.resources != BASE else None
    if choice is not None:
        plain = Choice(name=choice.name, resources=choice.resources) if options.record_only else choice
        settings = with_choice(settings, plain)
    if not options.record_only:
        tune_process()
    parts = rerun_parts(settings, with_model=not options.record_only)
    rerun = build(parts, Rerun)
    wanted = _wanted(options, recorded, rerun)

    async def work() -> Replayed:
        async with to_change(options.store_url, place) as store:
            (rollout,) = await rerun.run(
                store,
                [wanted],
                purpose="replay",
                record_only=options.record_only,
                settings=masked(parts),
                on_wait=progress.waited,
                note=progress.note,
            )
            spans = await spans_of_rollout(store, rollout.rollout_id)
            usage = await usage_of(store, [rollout])
            return Replayed(
                before=recorded.rollout,
                after=rollout,
                likeness=likeness(recorded.spans, spans, from_call=options.from_call),
                model_calls=0 if options.record_only else usage.calls,
                from_call=options.from_call,
                where=store.location,
            )

    return run_interruptibly(work)


def _wanted(options: Options, recorded: Recorded, rerun: Rerun) -> Wanted:
    replayed: dict[str, Json] = {
        "replay_of": recorded.rollout.rollout_id,
        "replay_strict": not options.fresh_on_difference,
    }
    if options.from_call is not None:
        replayed["replay_from_call"] = options.from_call - 1
    resources = recorded.other
    if options.resources is not None and resources is None:
        models = {name: one for name, one in recorded.resources.items() if isinstance(one, ProxyLLM)}
        resources = {**rerun.resources, **models}
    return Wanted(
        rollout=recorded.rollout,
        metadata=replayed,
        resources=resources,
        config=recorded.rollout.config.model_copy(update={"max_attempts": 1}),
    )


def _refuse_differences(options: Options, found: Replayed) -> None:
    """Raise where the replay did not do what was asked for."""
    calls = found.likeness.calls
    if calls and not options.fresh_on_difference:
        number = calls[0].number
        raise RunStoppedError(
            f"{calls[0].why}: --from-call {number} lets the model answer from there, --fresh-on-difference whatever"
            " differs"
        )
    if found.after.status != "succeeded" and found.before.status == "succeeded":
        raise RunStoppedError(f"the replay failed, and the rollout had not: {first_cause([found.after])}")
