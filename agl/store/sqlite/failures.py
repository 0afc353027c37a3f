"""What SQLite refuses, in words for the caller: whether to try again, and what to do about it."""

from __future__ import annotations

import sqlite3

from agl.errors import InvalidRequestError, StoreError, StoreUnavailableError

ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: nothing of this call is stored; make room, then repeat it",
    sqlite3.SQLITE_IOERR: "the disk failed, or its limit or quota is reached: nothing of this call is stored",
    sqlite3.SQLITE_READONLY: "the file cannot be written any more: nothing of this call is stored",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened any more",
    sqlite3.SQLITE_BUSY: "another process holds the file: nothing of this call is stored",
}
"""By SQLite's primary result code (https://www.sqlite.org/rescode.html): what may be repeated once it is mended."""
USELESS = {
    sqlite3.SQLITE_NOTADB: "is not a store's file",
    sqlite3.SQLITE_CORRUPT: "is damaged",
}
"""Likewise: what no repetition mends."""
PRIMARY = 0xFF


def store_error(error: Exception, path: str | None = None) -> Exception:
    """Return the error a caller sees: SQLite's own in words, a number too large for it as InvalidRequestError."""
    wrapped: StoreError
    if isinstance(error, OverflowError):
        wrapped = InvalidRequestError(f"a number is too large for the store (64 bits): {error}")
    elif isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & PRIMARY
        advice = ADVICE.get(code)
        if code in USELESS:
            wrapped = StoreError(
                f"{path or 'the file of the store'} {USELESS[code]} ({error}): name another run or store, or put back a"
                " copy of it"
            )
        elif advice is None:
            wrapped = StoreError(f"the store's database refused: {error}")
        else:
            wrapped = StoreUnavailableError(f"{'' if path is None else f'{path}: '}{advice} ({error})")
    else:
        return error
    wrapped.__cause__ = error
    return wrapped
