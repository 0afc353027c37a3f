"""The store on this disk: written, read back, and nothing of it left. One that is served: see the integration tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agl.doctor.records import findings_from, scratch_store
from agl.errors import AccessDeniedError, StoreError, StoreUnavailableError
from agl.store.sqlite import InMemoryLightningStore


async def test_a_scratch_store_is_written_and_taken_away(tmp_path: Path) -> None:
    (finding,) = await scratch_store(tmp_path / "runs" / "later")
    assert finding.what == "store"
    assert finding.detail.startswith("SQLite written and read back, write-ahead log, ")
    assert list(tmp_path.iterdir()) == []


async def test_a_store_that_answers_is_named_with_its_identity() -> None:
    store = InMemoryLightningStore()
    found = await findings_from(store, sent="no token")
    assert [(finding.status, finding.what) for finding in found] == [("ok", "store"), ("ok", "round trip")]
    assert found[0].detail.startswith("memory is ")
    assert found[0].detail.endswith("; no token accepted")


class Refusing(InMemoryLightningStore):
    """Lets nobody in."""

    def __init__(self, error: StoreError) -> None:
        super().__init__()
        self.error = error

    async def statistics(self, *, run_id: str | None = None) -> dict[str, Any]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "detail", "fix"),
    [
        (
            AccessDeniedError("the token is wrong"),
            "memory refuses the token of AGL_STORE_TOKEN: the token is wrong",
            "set AGL_STORE_TOKEN to the token that `agl store` was started with",
        ),
        (
            StoreUnavailableError("nobody answers at\nhttp://x"),
            "nobody answers at http://x",
            "start it there (agl store), or see the address, firewalls and proxies between",
        ),
    ],
)
async def test_a_store_that_lets_nobody_in_fails_with_what_to_do(
    error: StoreError, detail: str, fix: str
) -> None:
    (finding,) = await findings_from(Refusing(error), sent="the token of AGL_STORE_TOKEN")
    assert (finding.status, finding.detail, finding.fix) == ("fail", detail, fix)
