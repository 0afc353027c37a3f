"""The data: counted, shown, and looked through for tasks that are in two splits."""

from __future__ import annotations

from typing import Any

import pytest

from agl.doctor.tasks import data
from agl.errors import ConfigError
from agl.types import Json, Mode


class Splits:
    """Tasks by split."""

    def __init__(self, **splits: list[Any]) -> None:
        self.splits = splits

    def load(self, mode: Mode) -> list[Json]:
        return self.splits.get(mode, [])


def told(*, needs_train: bool = True, **splits: list[Any]) -> list[tuple[str, str, str]]:
    return [(f.status, f.what, f.detail) for f in data(Splits(**splits), needs_train=needs_train)]


TEN = [{"q": number} for number in range(10)]
OTHERS = [{"q": number} for number in range(10, 30)]


def test_splits_that_are_well_are_counted_with_their_first_task() -> None:
    assert told(train=TEN, val=OTHERS) == [
        ("ok", "data train", '10 tasks, first {"q": 0}'),
        ("ok", "data val", '20 tasks, first {"q": 10}'),
    ]


def test_a_long_task_is_cut_and_what_a_terminal_would_obey_is_taken_out() -> None:
    (_, _, first), *_ = told(train=["\x1b[31m" + "x" * 99], val=OTHERS)
    assert "\x1b" not in first
    assert first.endswith("xxx...")


@pytest.mark.parametrize(
    ("splits", "finding"),
    [
        ({"val": OTHERS}, ("fail", "data", "there are no training tasks")),
        ({"train": TEN}, ("warn", "data", "there are no validation tasks")),
        ({"train": TEN, "val": OTHERS[:3]}, ("warn", "data", "only 3 validation tasks")),
        ({"train": [*TEN, TEN[0]], "val": OTHERS}, ("warn", "data train", "1 of 11 tasks are there already")),
        (
            {"train": TEN, "val": [*OTHERS, TEN[3]]},
            ("warn", "data val", "1 of 21 tasks are training tasks"),
        ),
        (
            {"train": TEN, "val": OTHERS, "test": TEN[:2]},
            ("warn", "data test", "2 of 2 tasks are training tasks"),
        ),
    ],
)
def test_what_hides_progress_is_told(splits: dict[str, list[Any]], finding: tuple[str, str, str]) -> None:
    assert [one for one in told(**splits) if one[0] != "ok"] == [finding]


def test_the_order_of_keys_makes_no_other_task() -> None:
    found = told(train=[{"a": 1, "b": 2}], val=[{"b": 2, "a": 1}, *OTHERS])
    assert ("warn", "data val", "1 of 21 tasks are training tasks") in found


def test_a_search_for_prompts_needs_no_training_tasks() -> None:
    assert "fail" not in [status for status, _, _ in told(needs_train=False, val=OTHERS)]


def test_data_that_do_not_load_are_the_errors_own_words() -> None:
    class Broken:
        def load(self, mode: Mode) -> list[Json]:
            raise ConfigError(f"{mode}.jsonl:3: not a JSON value")

    with pytest.raises(ConfigError, match=r"train\.jsonl:3"):
        data(Broken(), needs_train=True)
