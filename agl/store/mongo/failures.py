"""What goes wrong between us and MongoDB, as the store's own errors; none of them shows the URL."""

from __future__ import annotations

from typing import Any

from bson.errors import BSONError, InvalidDocument
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
)

from agl.errors import InvalidRequestError, StoreError, StoreUnavailableError

DUPLICATE = 11000
"""MongoDB's code for a second document with the same value of a unique index."""
_PASSING = frozenset((6, 7, 89, 91, 112, 117, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436))
"""Codes of a server that cannot do it now: the network, a new primary, a shutdown, conflicting operations
(https://github.com/mongodb/specifications, retryable reads and writes; and 112 and 117, conflicts).
"""
_TOO_LARGE = frozenset((10334, 17419, 17420))
REFUSALS = (PyMongoError, BSONError, OverflowError, UnicodeEncodeError)
"""What a call of the driver may raise because of the server, the network or the value."""


def is_passing(error: Exception) -> bool:
    """Return whether the call may succeed a moment later: the server was not reached, is busy, or changes roles."""
    if isinstance(error, ConnectionFailure):
        return True
    if isinstance(error, BulkWriteError):
        codes = _codes(error)
        return bool(codes & _PASSING) and codes <= _PASSING | {DUPLICATE}
    return isinstance(error, OperationFailure) and (
        error.code in _PASSING or error.has_error_label("RetryableWriteError")
    )


def is_duplicate(error: Exception) -> bool:
    """Return whether unique indexes refused, and nothing else went wrong."""
    if isinstance(error, BulkWriteError):
        return _codes(error) == {DUPLICATE}
    return isinstance(error, DuplicateKeyError)


def store_error(error: Exception, location: str) -> StoreError:
    """Return the error that a caller of the store sees."""
    if isinstance(error, InvalidOperation) or is_passing(error):
        return StoreUnavailableError(
            f"{location} does not answer ({type(error).__name__}): check that MongoDB runs there and is reachable"
        )
    if isinstance(error, OverflowError):
        return InvalidRequestError(f"a number is too large for the store (64 bits): {error}")
    if isinstance(error, UnicodeEncodeError | InvalidDocument) or not isinstance(error, PyMongoError):
        return InvalidRequestError(f"a value is no text or number that can be stored: {error}")
    if isinstance(error, DocumentTooLarge) or getattr(error, "code", None) in _TOO_LARGE:
        return InvalidRequestError(f"the value is larger than a document of {location} may be")
    if isinstance(error, BulkWriteError):
        return StoreError(f"{location} refused a write: {_first_reason(error)}")
    if isinstance(error, OperationFailure):
        return StoreError(f"{location} refused (code {error.code}): {_reason(error)}")
    if isinstance(error, ConfigurationError):
        return StoreError(f"the options of {location} do not work: {error}")
    return StoreError(f"{location}: {type(error).__name__}")


def _reason(error: OperationFailure) -> str:
    details = error.details or {}
    return str(details.get("errmsg", "no reason given"))


def _failed_writes(error: BulkWriteError) -> list[dict[str, Any]]:
    details: dict[str, Any] = dict(error.details or {})
    return [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]


def _codes(error: BulkWriteError) -> set[int]:
    return {int(one.get("code", 0)) for one in _failed_writes(error)}


def _first_reason(error: BulkWriteError) -> str:
    return next((str(one.get("errmsg")) for one in _failed_writes(error)), "no reason given")
