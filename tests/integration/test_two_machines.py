"""Store and training on one address, runners on another, in network namespaces; the link between them is cut."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from awaited import soon
from chaos import Part
from exact_accounts import (
    check_counts,
    check_leases,
    check_results_are_of_the_last_attempt,
    journal_lines,
    records_of,
    refused,
    results,
)
from exact_run import calm_recipe, recipe
from namespaces import two_machines
from train_processes import finished, metrics_of, start_train

UNRESPONSIVE_SECONDS = 2.0
"""As the recipe has it."""
CUT_SECONDS = 3 * UNRESPONSIVE_SECONDS
ITERATIONS = "algorithm.iterations=2"
SECRETS = {
    "AGL_STORE_TOKEN": "secret-of-the-store-0123456789",
    "AGL_PROXY_TOKEN": "secret-of-the-proxy-9876543210",
}


async def test_a_link_that_is_cut_for_longer_than_attempts_may_be_silent_costs_nothing(
    tmp_path: Path,
) -> None:
    whole = tmp_path / "whole"
    calm = calm_recipe(tmp_path / "calm configs", tmp_path / "calm journal")
    code, _, err = finished(start_train(whole, *calm, ITERATIONS))
    assert (code, err) == (0, "")

    given = recipe(tmp_path / "configs", tmp_path / "journal", seconds=0.8)
    run_dir = tmp_path / "run"
    with two_machines() as network, ExitStack() as stack:
        near, far = network.near, network.far
        url = f"http://{near.address}:4747"

        def started(name: str, *command: str) -> Part:
            agl = far.agl if name == "runner" else near.agl
            part = Part(name=name, command=lambda: command, folder=tmp_path, agl=agl, environment=SECRETS)
            part.start()
            stack.callback(part.kill)
            return part

        store = started("store", "store", "store.path=s.sqlite", "--host", near.address, "--port", "4747")
        await store.said("agl store serves")
        runner = started("runner", "runner", *given, "--store-url", url, "--max-concurrency", "4")
        at = ["runner=remote", "--store-url", url, f"proxy.host={near.address}"]
        trainer = started(
            "trainer",
            "train",
            *given,
            *at,
            "proxy.token=${oc.env:AGL_PROXY_TOKEN}",
            ITERATIONS,
            "--run-dir",
            str(run_dir),
        )
        await ends_in(tmp_path / "journal", 10)
        network.cut()
        await asyncio.sleep(CUT_SECONDS)
        in_time = len(journal_lines(tmp_path / "journal"))
        network.mend()
        mended = time.time()
        assert await asyncio.to_thread(trainer.wait, 90) == 0, trainer.last_words()
        assert len(journal_lines(tmp_path / "journal")) > in_time
        assert await runner.end() == 0
        assert await store.end() == 0

    records = await records_of(tmp_path / "s.sqlite", tmp_path / "journal")
    check_counts(records)
    check_leases(records)
    check_results_are_of_the_last_attempt(records)
    calm_records = await records_of(whole / "store.sqlite", tmp_path / "calm journal")
    assert results(records, run_dir.name) == results(calm_records, whole.name)
    assert metrics_of(run_dir) == metrics_of(whole)
    lost = Counter(one.status for attempts in records.attempts.values() for one in attempts)["unresponsive"]
    assert 1 <= lost <= 4  # what the runner had in hand
    assert refused(records) >= 1
    for attempts in records.attempts.values():
        for one in attempts:
            assert one.status != "unresponsive" or (one.finished_at or 0.0) < mended


async def ends_in(journal: Path, number: int) -> None:
    """Return once so many attempts have ended."""

    async def look() -> bool:
        return journal.exists() and sum(line.word == "end" for line in journal_lines(journal)) >= number

    await soon(look, what=f"{number} attempts", seconds=90)
