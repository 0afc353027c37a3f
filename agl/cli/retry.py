"""agl retry: ask again for rollouts that failed or were cancelled; execute them here, or say who does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from agl.cli.changed_records import place_of, rollout_named, to_change
from agl.cli.contestants import Choice, with_choice
from agl.cli.progress import Progress
from agl.cli.rerun_settings import recorded_choice, rerun_parts, rerun_settings, split_arguments
from agl.cli.text import counted, number, say, say_json, shortened, terminal_width, wrapped
from agl.cli.train import tune_process
from agl.config import Settings, build, masked
from agl.errors import ConfigError, RunStoppedError
from agl.evaluation.counts import first_cause
from agl.launch.cancelling import cancel
from agl.launch.finished_runs import SavedWeights
from agl.launch.rerun import Rerun, Wanted
from agl.launch.retrying import RETRY_OF, Retry, enqueue_retries, planned_retry, runners_for
from agl.launch.stopping import run_interruptibly
from agl.store.base import LightningStore
from agl.types import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for.

    Args:
        retries: in the order of the ids.
        now: the rollout that stands for each.
        note: who executes them, in words; None where they were executed here, or nothing waits.
    """

    retries: Sequence[Retry]
    now: Sequence[Rollout]
    note: str | None = None


def main(
    arguments: Sequence[str],
    *,
    here: bool,
    store_url: str | None,
    run_dir: str | None,
    config_dir: Path | None,
    as_json: bool,
) -> None:
    """Enqueue, or with ``here`` execute, and print.

    Raises:
        ConfigError: an unknown id, a rollout that has succeeded, or a mistake in the settings.
        StoreError: the store is another process's.
        RunStoppedError: executed here, a retry failed.
    """
    ids, overrides = split_arguments(arguments)
    if not ids:
        raise ConfigError("agl retry takes ids of rollouts: agl ls rollouts --status failed lists them")
    if not here and (overrides or config_dir is not None):
        raise ConfigError(f"{overrides[0] if overrides else '--config-dir'}: settings are for --here")
    ids = list(dict.fromkeys(ids))
    place = asyncio.run(place_of(ids[0], store_url, run_dir, kinds=("rollout",)))
    if here:
        asked = _executed(ids, overrides, store_url=store_url, place=place, config_dir=config_dir)
    else:
        asked = asyncio.run(_enqueued(ids, store_url, place))
    if as_json:
        retries = [retry.as_json(now) for retry, now in zip(asked.retries, asked.now, strict=True)]
        say_json({"retries": retries, "note": asked.note})
    else:
        say(_lines(asked, terminal_width()))
    failed = [one for one in asked.now if one.status in ("failed", "cancelled")]
    if failed:
        raise RunStoppedError(
            f"{len(failed)} of {counted(len(asked.now), 'retry', 'retries')} failed; the first: {first_cause(failed)}"
        )


async def _enqueued(ids: Sequence[str], store_url: str | None, place: str | None) -> Asked:
    async with to_change(store_url, place) as store:
        retries = await _planned(store, ids)
        now = await enqueue_retries(store, retries)
        waiting = [one for one in now if one.status in ("pending", "requeuing")]
        note = await _who(store, waiting, ids, store_url, place) if waiting else None
        return Asked(retries=retries, now=now, note=note)


async def _planned(store: LightningStore, ids: Sequence[str]) -> list[Retry]:
    """What a retry of each comes to; two of one rollout are one."""
    retries = [await planned_retry(store, await rollout_named(store, rollout_id)) for rollout_id in ids]
    for retry in retries:
        if retry.rollout.status == "succeeded":
            raise ConfigError(
                f"rollout {retry.rollout.rollout_id} has succeeded: there is nothing to retry (agl replay runs it"
                " again)"
            )
    return list({retry.retry_id: retry for retry in retries}.values())


async def _who(
    store: LightningStore,
    waiting: Sequence[Rollout],
    ids: Sequence[str],
    store_url: str | None,
    place: str | None,
) -> str:
    """Who executes what waits now."""
    what = "It waits" if len(waiting) == 1 else "They wait"
    here = f"agl retry {' '.join(ids)} --here"
    if store_url is None:
        return f"{what} in {place}, on which no runner is at work: execute here and now with {here}"
    runners = await runners_for(store, waiting[0].run_id)
    if runners:
        return f"{what} for the {counted(len(runners), 'runner')} at work on the store."
    of_run = "" if waiting[0].run_id is None else f" --run-id {waiting[0].run_id}"
    return (
        f"{what}, and no runner is at work on the store: start one with agl runner +recipe=NAME --store-url"
        f" {store_url}{of_run}, or execute here with {here} --store-url {store_url}"
    )


def _executed(
    ids: Sequence[str],
    overrides: Sequence[str],
    *,
    store_url: str | None,
    place: str | None,
    config_dir: Path | None,
) -> Asked:
    tune_process()
    with redirect_stdout(sys.stderr), Progress(sys.stderr, "retrying") as progress:
        progress.draw("starting")
        settings, choice = asyncio.run(_settings(ids, overrides, store_url, place, config_dir))
        parts = rerun_parts(settings if choice is None else with_choice(settings, choice), with_model=True)
        rerun = build(parts, Rerun)

        async def work() -> Asked:
            async with to_change(store_url, place) as store:
                retries = [await _free(store, retry) for retry in await _planned(store, ids)]
                new = [retry for retry in retries if retry.existing is None]
                wanted = [
                    Wanted(
                        rollout=retry.rollout,
                        rollout_id=retry.retry_id,
                        metadata={RETRY_OF: retry.first_id},
                        group_id=retry.rollout.group_id,
                    )
                    for retry in new
                ]
                made: dict[str, Rollout] = {}
                if wanted:
                    ended = await rerun.run(
                        store,
                        wanted,
                        purpose="retry",
                        settings=masked(parts),
                        on_wait=progress.waited,
                        note=progress.note,
                    )
                    made = {retry.retry_id: one for retry, one in zip(new, ended, strict=True)}
                now = [retry.existing or made[retry.retry_id] for retry in retries]
                return Asked(retries=retries, now=now)

        return run_interruptibly(work)


async def _settings(
    ids: Sequence[str],
    overrides: Sequence[str],
    store_url: str | None,
    place: str | None,
    config_dir: Path | None,
) -> tuple[Settings, Choice | None]:
    """The settings of the run that had the rollouts, and the model that answered them then."""
    async with to_change(store_url, place) as store:
        rollouts = [await rollout_named(store, rollout_id) for rollout_id in ids]
        settings = rerun_settings(rollouts[0], place, overrides, config_dir=config_dir)
        choices = [await recorded_choice(store, rollout, place) for rollout in rollouts]
        for rollout, choice in zip(rollouts, choices, strict=True):
            if _weights(choice) != _weights(choices[0]):
                raise ConfigError(
                    f"{rollouts[0].rollout_id} and {rollout.rollout_id} had different weights of the policy: retry them"
                    " one after the other"
                )
        return settings, choices[0]


def _weights(choice: Choice | None) -> SavedWeights | None:
    return None if choice is None else choice.weights


async def _free(store: LightningStore, retry: Retry) -> Retry:
    """The retry to execute here: one that only waits is taken out of the queue, and stands for itself no longer."""
    existing = retry.existing
    if existing is None or existing.status not in ("pending", "requeuing"):
        return retry
    await cancel(store, existing)
    return await planned_retry(store, await store.get_rollout_by_id(retry.rollout.rollout_id))


def _lines(asked: Asked, width: int) -> list[str]:
    lines: list[str] = []
    for retry, now in zip(asked.retries, asked.now, strict=True):
        lines.append(f"{retry.rollout.rollout_id}  {retry.rollout.status}")
        reward = "" if now.reward is None else f", reward {number(now.reward)}"
        if retry.retry_id == retry.rollout.rollout_id:
            lines[-1] += ": it is open itself"
        else:
            lines.append(
                f"  {now.rollout_id}  {now.status}{reward}{'' if retry.existing is None else ': asked for before'}"
            )
        if now.error is not None:
            lines.append(f"    {shortened(f'{now.error.cause}: {now.error.message}', width - 4)}")
    return lines if asked.note is None else [*lines, "", *wrapped(asked.note, width=width)]
