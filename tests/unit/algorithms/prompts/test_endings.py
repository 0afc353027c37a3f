"""A search ends where the run as a whole says so, with the best so far."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prompt_searches import bench
from scripted_worker import Script

from agl.algorithms.prompts.endings import SearchEndedError, check_run
from agl.algorithms.random_search import RandomSearch
from agl.store.sqlite import InMemoryLightningStore


async def test_a_search_ends_when_the_run_says_so(tmp_path: Path) -> None:
    settings = RandomSearch(val_batch_size=4, rounds=2, rewrites_per_round=2, max_attempts=1)
    reasons: list[str] = []

    async def ends_now() -> str | None:
        return reasons[0] if reasons else None

    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, script=lambda *_: Script(reward=0.5)) as at,
    ):
        at.search.context = replace(at.search.context, ends_now=ends_now)
        await check_run(at.search.context)
        await at.search.begin()
        reasons.append("the ladder's minutes are spent")
        with pytest.raises(SearchEndedError, match="minutes are spent"):
            await check_run(at.search.context)
        ending = await at.search.run()
    assert ending == "ended early: the ladder's minutes are spent"
    assert at.optimizer.asked == []
