from __future__ import annotations

import pytest
from bson.errors import InvalidDocument
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DocumentTooLarge,
    DuplicateKeyError,
    OperationFailure,
    ServerSelectionTimeoutError,
)

from agl.errors import InvalidRequestError, StoreError, StoreUnavailableError
from agl.store.mongo.failures import is_duplicate, is_passing, store_error


def bulk(*codes: int) -> BulkWriteError:
    errors = [{"index": number, "code": code, "errmsg": "no"} for number, code in enumerate(codes)]
    return BulkWriteError({"writeErrors": errors, "writeConcernErrors": []})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerSelectionTimeoutError("mongodb://u:secret@h"), StoreUnavailableError),
        (AutoReconnect("gone"), StoreUnavailableError),
        (OperationFailure("stepped down", 189), StoreUnavailableError),
        (OperationFailure("not allowed", 13), StoreError),
        (OverflowError("int too large"), InvalidRequestError),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), InvalidRequestError),
        (InvalidDocument("cannot encode object"), InvalidRequestError),
        (DocumentTooLarge("17 MB"), InvalidRequestError),
        (bulk(121), StoreError),
    ],
)
def test_each_failure_is_the_stores_own_error_and_shows_no_secret(
    error: Exception, kind: type[StoreError]
) -> None:
    shown = store_error(error, "mongodb://h/agl")
    assert type(shown) is kind
    assert "secret" not in str(shown)


def test_only_what_may_pass_is_asked_again() -> None:
    assert is_passing(AutoReconnect("gone"))
    assert is_passing(OperationFailure("busy", 112))
    assert is_passing(bulk(11000, 112))
    assert not is_passing(bulk(11000))
    assert not is_passing(bulk(112, 121))
    assert not is_passing(OperationFailure("not allowed", 13))


def test_duplicates_alone_are_told_apart() -> None:
    assert is_duplicate(DuplicateKeyError("twice", 11000))
    assert is_duplicate(bulk(11000, 11000))
    assert not is_duplicate(bulk(11000, 121))
