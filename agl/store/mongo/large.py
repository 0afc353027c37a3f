"""Long texts of spans, stored once by hash in ``blobs``; token ids and logprobs as bytes.

What is left of a long text in a span's JSON is ``MARK`` and then, with ``MARK`` between them, short pieces and hashes
in turn. A span names its blobs (``blobs``, indexed), and blobs count nothing: a count would have to change together
with the span. Instead, a blob is written before the span that needs it and notes when it was last needed
(``used_at``); only one that no span names and that nobody needed for an hour is forgotten, on condition that this is
still so. A process killed in between leaves at worst a blob too many, until the next deletion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from agl.store.cutting import has_marks, is_blob, pieces_of
from agl.store.mongo.access import Access
from agl.store.mongo.documents import Document
from agl.store.packed import MARK

HASH_BYTES = 16
FORGET_SECONDS = 3600.0
"""A blob needed more recently is kept: the span that needs it may be on its way."""
FRESH_SECONDS = 600.0
"""A blob noted as needed more recently is not noted again."""
AT_ONCE = 500
MAX_REMEMBERED = 100_000

Pieces = dict[str, str]
"""Long pieces of texts by their hashes."""


def stowed(value: Any, pieces: Pieces) -> Any:
    """Return a JSON value with references in place of long texts, whose pieces are added to ``pieces``."""
    if isinstance(value, str):
        return _template(value, pieces) if has_marks(value) else value
    if isinstance(value, dict):
        return {key: stowed(one, pieces) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [stowed(one, pieces) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def filled(value: Any, contents: Mapping[str, str]) -> Any:
    """Return a stowed value with the texts in place of the references."""
    if isinstance(value, str):
        if not value.startswith(MARK):
            return value
        parts = value[1:].split(MARK)
        parts[1::2] = [contents[name] for name in parts[1::2]]
        return "".join(parts)
    if isinstance(value, dict):
        return {key: filled(one, contents) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [filled(one, contents) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return value


async def keep(access: Access, pieces: Pieces) -> None:
    """Store pieces, each once, and note that they are needed now. Call it before what needs them is written."""
    now = access.now()
    missing = [name for name in pieces if access.kept.get(name, 0.0) < now - FRESH_SECONDS]
    for start in range(0, len(missing), AT_ONCE):
        some = missing[start : start + AT_ONCE]
        fresh = {"_id": {"$in": some}, "used_at": {"$gt": now - FRESH_SECONDS}}
        found = await access.call(lambda: access["blobs"].find(fresh, {"_id": 1}).to_list())  # noqa: B023 - awaited
        there = {document["_id"] for document in found}
        writes = [
            UpdateOne({"_id": name}, {"$set": {"text": pieces[name]}, "$max": {"used_at": now}}, upsert=True)
            for name in some
            if name not in there
        ]
        while writes:
            try:
                await access.call(lambda: access["blobs"].bulk_write(writes, ordered=False))  # noqa: B023 - awaited
            except (BulkWriteError, DuplicateKeyError):
                continue  # another process stored one of them at the same moment: now it is there
            break
        access.kept |= dict.fromkeys(some, now)
    if len(access.kept) > MAX_REMEMBERED:
        access.kept = dict.fromkeys(pieces, now)


async def contents(access: Access, documents: Iterable[Document]) -> dict[str, str]:
    """Return the pieces that documents name."""
    names = list({name for document in documents for name in document.get("blobs", ())})
    found: dict[str, str] = {}
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        blobs = await access.call(
            lambda: access["blobs"].find({"_id": {"$in": some}}).to_list()  # noqa: B023 - awaited here
        )
        found |= {blob["_id"]: blob["text"] for blob in blobs}
    return found


async def forget(access: Access) -> None:
    """Delete the blobs that no span names and nobody needed for a while."""
    unused = {"$lt": access.now() - FORGET_SECONDS}
    after = ""
    while True:
        where = {"_id": {"$gt": after}, "used_at": unused}
        some = await access.call(
            lambda: access["blobs"].find(where, {"_id": 1}).sort([("_id", 1)]).limit(AT_ONCE).to_list()  # noqa: B023
        )
        names = [document["_id"] for document in some]
        if names:
            naming = {"blobs": {"$in": names}}
            named = set(await access.call(lambda: access["spans"].distinct("blobs", naming)))  # noqa: B023
            gone = {"_id": {"$in": [name for name in names if name not in named]}, "used_at": unused}
            await access.call(lambda: access["blobs"].delete_many(gone))  # noqa: B023 - awaited here
        if len(names) < AT_ONCE:
            return
        after = names[-1]


def _template(text: str, pieces: Pieces) -> str:
    parts = [""]  # short pieces at even places, hashes at odd ones
    for piece in pieces_of(text):
        if is_blob(piece):
            name = hashlib.blake2b(piece.encode("utf-8"), digest_size=HASH_BYTES).hexdigest()
            pieces[name] = piece
            parts += (name, "")
        else:
            parts[-1] += piece
    return MARK + MARK.join(parts)
