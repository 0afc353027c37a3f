"""Open a store by where it is: a file, the folder of a run, or a URL; mostly to read what others recorded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from agl.errors import ConfigError, StoreError
from agl.store.base import LightningStore
from agl.store.client import LightningStoreClient
from agl.store.sqlite import SqliteLightningStore

FILE_IN_RUN = "store.sqlite"
"""What a run's own store is called in its folder."""
_HEADER = b"SQLite format 3\0"
"""Source: https://www.sqlite.org/fileformat.html#magic_header_string."""


def store_to_read(place: str, *, token: str | None = None) -> LightningStore:
    """Return the store, built but not open; a file is never written, so another process may be serving it.

    Args:
        place: a URL, a store's file, or the folder of a run that has one.
        token: of the server at a URL.

    Raises:
        ConfigError: there is no such file.
    """
    if place.startswith(("http://", "https://")):
        return LightningStoreClient(place, token=token)
    path = Path(place).expanduser()
    file = path / FILE_IN_RUN if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"there is no store at {file}: give its file, a run's folder, or a URL")
    return SqliteLightningStore(str(file), read_only=True)


def store_to_change(file: Path) -> LightningStore:
    """Return the store in a file to write in, built but not open; opening it makes the file where there is none.

    Raises:
        StoreError: the file is something else; nothing is put beside it.
    """
    with suppress(FileNotFoundError), file.open("rb") as opened:
        if opened.read(len(_HEADER)) not in (b"", _HEADER):
            raise StoreError(f"{file} is not a store's file: name a run, a store's file, or a URL")
    return SqliteLightningStore(str(file))
