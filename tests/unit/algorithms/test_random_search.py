"""Random search: rewrites of the first prompts, without a look at results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prompt_searches import START, bench
from scripted_worker import Script

from agl.algorithms.random_search import RandomSearch
from agl.errors import ConfigError
from agl.store.sqlite import InMemoryLightningStore

SETTINGS = RandomSearch(val_batch_size=4, rounds=2, rewrites_per_round=3, max_attempts=1)


def numbered(rollout_id: str, body: Mapping[str, Any]) -> str:
    asked = json.loads(body["messages"][0]["content"])
    assert (asked["prompt"], asked["critique"], asked["file"]) == (START, "", "rewrite.poml")
    _, number, index = rollout_id.rsplit("-", 2)
    return f"<prompt>{START} {10 * int(number) + int(index)}</prompt>"


def by_number(text: str, _task: int) -> Script:
    return Script(reward=float(text.rpartition(" ")[2]) / 100 if text != START else 0.0)


async def test_the_best_of_many_rewrites_of_the_first_prompt_is_kept(tmp_path: Path) -> None:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, SETTINGS, script=by_number, reply=numbered) as at,
    ):
        await at.search.begin()
        assert await at.search.run() is None
        best = at.search.best
    assert best.prompts["prompt"].template == f"{START} 22"
    assert best.parent == at.search.start.candidate_id
    assert len(at.optimizer.asked) == 6
    assert at.search.scorer.spent.rollouts <= SETTINGS.most_rollouts(at.search)
    assert at.search.round == 3


def test_a_run_goes_on_with_more_rounds() -> None:
    assert SETTINGS.further() == "rounds=4"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rewrites_per_round": 0}, "rewrites_per_round"),
        ({"diversity_temperature": -1.0}, "diversity_temperature"),
        ({"rewrite_file": "/no/such.poml"}, "rewrite_file"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        RandomSearch(**settings)
