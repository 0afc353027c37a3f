from __future__ import annotations

from agl.errors import StoreError
from agl.store.server.refusal import RefusedError


def test_a_refusal_is_a_store_error_with_the_wires_code() -> None:
    error = RefusedError("too_large", "smaller, please", closes=True)

    assert isinstance(error, StoreError)
    assert (error.code, str(error), error.closes) == ("too_large", "smaller, please", True)
    assert not RefusedError("invalid", "x").closes
