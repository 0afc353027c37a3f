"""Store, proxy, three pools of runners and training as processes of their own, killed, stopped and cut off at random.

A minute at each change, ten with ``AGL_NIGHTLY=1``; ``AGL_CHAOS_SEED`` chooses another schedule. Runs follow each other
until the time is over; the last one then goes to its end in peace.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from awaited import soon
from chaos import Part, Trouble, chaos, schedule
from cut_link import Link
from exact_accounts import (
    check_counts,
    check_leases,
    check_results_are_of_the_last_attempt,
    journal_lines,
    late_results,
    records_of,
    refused,
    results,
    run_ids,
    summary,
)
from exact_run import WEIGHTS, calm_recipe, recipe
from nightly import NIGHTLY
from proxy_processes import scripted_upstream
from store_servers import lasting_port
from train_processes import finished, metrics_of, start_train

SEED = int(os.environ.get("AGL_CHAOS_SEED", "7"))
SECONDS = 600.0 if NIGHTLY else 60.0
PEACE_SECONDS = 180.0
"""The longest that the last run may take once the trouble is over."""
TOKEN = "secret-of-the-store-0123456789"
ITERATIONS = ["algorithm.iterations=3"]
SIZE = ["--processes", "1", "--max-concurrency", "3"]
POOLS = ("pool 1", "pool 2", "pool 3")


@dataclass(kw_only=True)
class World:
    """The processes, and the runs so far."""

    store: Part
    proxy: Part
    trainer: Part
    pools: list[Part]
    folder: Path
    given: list[str]
    num_runs: int = 1

    @property
    def parts(self) -> list[Part]:
        return [self.store, self.proxy, self.trainer, *self.pools]

    @property
    def run_dir(self) -> Path:
        return self.folder / f"run{self.num_runs}"

    def train(self) -> list[str]:
        """What begins the present run, or goes on with it."""
        if (self.run_dir / "settings.yaml").exists():
            return ["train", "--resume", str(self.run_dir)]
        assert self.trainer.link is not None
        at = ["runner=remote", "--store-url", self.trainer.link.url]
        return ["train", "--run-dir", str(self.run_dir), *self.given, *ITERATIONS, *at]

    def watch(self) -> None:
        """Begin the next run when one is over; start again what has ended by itself, and remember it."""
        for part in self.parts:
            code = None if part.busy else part.ended()
            if code is None:
                continue
            if part is self.trainer and code == 0:
                self.num_runs += 1
            else:
                part.fell.append((code, part.last_words()))
            part.start()

    async def last_run(self) -> None:
        """Let the present run come to its end."""
        deadline = time.monotonic() + PEACE_SECONDS
        while self.trainer.ended() is None:
            assert time.monotonic() < deadline, f"the run hangs: {self.trainer.last_words()}"
            await asyncio.sleep(0.05)
        assert self.trainer.ended() == 0, self.trainer.last_words()


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Start everything; none of it outlives the block."""
    rng = random.Random(SEED)
    secret = {"AGL_STORE_TOKEN": TOKEN}
    store_port, proxy_port = lasting_port(rng), lasting_port(rng)
    links: dict[str, Link] = {}
    async with AsyncExitStack() as stack:
        upstream = stack.enter_context(scripted_upstream())
        for name in ("proxy", "trainer", *POOLS):
            links[name] = Link(f"http://127.0.0.1:{store_port}")
            links[name].port = lasting_port(rng)
            await links[name].mend()
            stack.push_async_callback(links[name].close)
        given = recipe(
            folder / "configs",
            folder / "journal",
            seconds=2.5,
            judge=f"http://127.0.0.1:{proxy_port}",
        )
        store = ["store", f"store.path={folder / 'store.sqlite'}", "--port", str(store_port)]
        endpoint = f"proxy.endpoints={{judge: {{model: m, urls: ['{upstream.url}']}}}}"
        proxy = ["proxy", endpoint, "--port", str(proxy_port), "--store-url", links["proxy"].url]

        def part(name: str, command: Sequence[str]) -> Part:
            return Part(
                name=name,
                command=lambda: command,
                folder=folder,
                link=links.get(name),
                environment=secret,
            )

        made = World(
            store=part("store", store),
            proxy=part("proxy", proxy),
            trainer=part("trainer", ()),
            pools=[part(name, ["runner", *given, "--store-url", links[name].url, *SIZE]) for name in POOLS],
            folder=folder,
            given=given,
        )
        made.trainer.command = made.train
        for one in made.parts:
            one.start()
            stack.callback(one.kill)
        yield made


@pytest.mark.timeout(SECONDS + PEACE_SECONDS + 240)
async def test_nothing_is_lost_or_done_twice_whatever_dies_hangs_or_is_cut_off(tmp_path: Path) -> None:
    whole = tmp_path / "calm" / "run"
    calm = calm_recipe(tmp_path / "calm configs", tmp_path / "calm journal")
    code, _, err = finished(start_train(whole, *calm, *ITERATIONS))
    assert (code, err) == (0, "")
    expected = results(await records_of(whole / "store.sqlite", tmp_path / "calm journal"), whole.name)

    folder = tmp_path / "chaos"
    folder.mkdir()
    async with world(folder) as parts:
        await begun(folder / "journal")
        troubles = schedule(SEED, seconds=SECONDS, pools=POOLS)
        happened = await chaos(troubles, parts.parts, watch=parts.watch)
        await parts.last_run()
        for pool in parts.pools:
            await pool.said("agl runner joined")
            assert await pool.end() == 0
        await parts.proxy.said("agl proxy serves")
        assert await parts.proxy.end() == 0
        assert await parts.store.end() == 0
        fell = [(part.name, *end) for part in parts.parts for end in part.fell if not found_no_store(*end)]
        num_runs = parts.num_runs
    records = await records_of(folder / "store.sqlite", folder / "journal")
    print(told(happened), f"{num_runs} runs", summary(records), fell, sep="\n")  # noqa: T201 - where it fails
    assert fell == []
    assert run_ids(records.rollouts) == sorted(f"run{number}" for number in range(1, num_runs + 1))
    check_counts(records)
    check_leases(records)
    check_results_are_of_the_last_attempt(records)
    assert len(late_results(records)) >= 1
    assert refused(records) >= 1
    for number in range(1, num_runs + 1):
        run_dir = folder / f"run{number}"
        assert results(records, run_dir.name) == expected
        assert metrics_of(run_dir) == metrics_of(whole)
        assert (run_dir / "policy" / WEIGHTS).read_bytes() == (whole / "policy" / WEIGHTS).read_bytes()


async def begun(journal: Path) -> None:
    """Return once all pools have attempts in hand."""

    async def look() -> bool:
        return journal.exists() and len({line.pid for line in journal_lines(journal)}) >= len(POOLS)

    await soon(look, what="work in every pool", seconds=90)


def found_no_store(code: int, last_words: str) -> bool:
    """Whether it ended as it should where it finds no store for a minute at its start: whoever started it looks."""
    return code == 1 and last_words.splitlines()[-1].startswith("agl: no store answers at ")


def told(troubles: Sequence[Trouble]) -> str:
    return "\n".join(f"{one.at:6.1f} {one.part}: {one.kind} for {one.seconds:.1f} s" for one in troubles)
