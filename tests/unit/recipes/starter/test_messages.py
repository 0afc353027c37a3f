"""The tasks of a new recipe: made from a seed, each once, with the shop's rule about money."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from starter_recipe.messages import MONEY_BACK, QUEUES, messages, splits

FOLDER = Path(__file__).parents[4] / "recipes" / "starter" / "folder" / "data"
SIZES = {"train": 160, "val": 64, "test": 64}


def test_the_tasks_that_are_shipped_are_the_generators() -> None:
    for split, found in splits(SIZES).items():
        lines = (FOLDER / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == [
            {"message": one.text, "queue": one.queue} for one in found
        ]


def test_no_message_is_in_two_splits_or_twice_in_one() -> None:
    texts = [message.text for found in splits(SIZES).values() for message in found]
    assert len(set(texts)) == len(texts) == 288


def test_who_wants_money_back_goes_to_returns_whatever_the_matter() -> None:
    source = messages(Random(1))
    found = [next(source) for _ in range(2000)]
    for message in found:
        wants_money = any(demand in message.text for demand in MONEY_BACK)
        assert message.queue == ("returns" if wants_money else message.obvious)
    assert {message.obvious for message in found} == set(QUEUES)


def test_the_rule_matters_on_a_good_part_of_the_held_out_tasks() -> None:
    held_out = splits(SIZES)["val"]
    assert 10 <= sum(message.queue != message.obvious for message in held_out) <= 25
