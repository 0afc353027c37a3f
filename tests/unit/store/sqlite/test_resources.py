"""Which resources a rollout without resources gets."""

from __future__ import annotations

import pytest

from agl.errors import NotFoundError
from agl.store.sqlite import resources
from agl.store.sqlite.writer import Transaction


def test_the_runs_own_newest_version_goes_before_the_newest_of_all(transaction: Transaction) -> None:
    assert resources.latest_resources_id(transaction, None) is None
    for run_id, name in (("mine", "a"), ("mine", "b"), ("theirs", "c"), (None, "d")):
        resources.add(transaction, {"n": name}, run_id, name)
    assert resources.latest_resources_id(transaction, "mine") == "b"
    assert resources.latest_resources_id(transaction, "nobody's") == "d"
    assert resources.latest_resources_id(transaction, None) == "d"


def test_unknown_resources_are_named(transaction: Transaction) -> None:
    resources.add(transaction, {}, None, "known")
    resources.require_resources(transaction, "known")
    with pytest.raises(NotFoundError, match="'none'"):
        resources.require_resources(transaction, "none")
    with pytest.raises(NotFoundError, match="'none'"):
        resources.get(transaction.db, "none")
    assert resources.find(transaction.db, "none") is None
