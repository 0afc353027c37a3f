"""Enqueueing many rollouts, all or none, without a transaction.

A batch is written down before it is carried out: one document in ``batches`` holds the rollouts to insert, and its
insertion is the moment at which the whole batch is decided. Then the rollouts are inserted, and the document is
deleted. A process killed before the decision leaves nothing; one killed behind it leaves the document, from which any
process that has the namespace open inserts what is missing: an insertion that was done already is refused by its id,
so that doing it twice does no harm. A batch too large for one document is written in parts, which do not count until
a last document names them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError

from agl.errors import InvalidRequestError
from agl.store.mongo.access import ENVELOPE_BYTES, Access
from agl.store.mongo.documents import Document
from agl.store.mongo.failures import store_error

log = logging.getLogger(__name__)
ABANDONED_SECONDS = 10.0
"""A batch that its writer has not carried out by then is carried out by others."""
UNDECIDED_SECONDS = 3600.0
"""Parts without their last document are from a writer that was killed; they are deleted after this time."""


def encoded(access: Access, document: Document, what: str) -> bytes:
    """Return a document as BSON, after checking that the server will take it.

    Raises:
        InvalidRequestError: it is too large, or holds what BSON cannot express.
    """
    try:
        data = bson.encode(document)
    except (BSONError, OverflowError, UnicodeEncodeError) as error:
        raise store_error(error, access.location) from error
    if len(data) > access.document_bytes - ENVELOPE_BYTES:
        raise InvalidRequestError(
            f"{what} has {len(data)} bytes, and a document of {access.location} may have "
            f"{access.document_bytes - ENVELOPE_BYTES}: keep large values elsewhere and name them"
        )
    return data


async def insert(access: Access, documents: Sequence[bytes]) -> None:
    """Insert new rollouts, all or none; one whose id is known is left as it is."""
    if len(documents) == 1:
        await _insert_new(access, documents)
        return
    batch_id = access.new_id("batch")
    parts = _parts(documents, access.document_bytes - ENVELOPE_BYTES)
    head = {"batch": batch_id, "at": access.now()}
    if len(parts) == 1:
        await _write(access, {"_id": batch_id, **head, "decided": True, "documents": parts[0]})
    else:
        for number, part in enumerate(parts):
            await _write(access, {"_id": f"{batch_id}/{number}", **head, "documents": part})
        await _write(access, {"_id": batch_id, **head, "decided": True, "documents": []})
    await _insert_new(access, documents)
    await access.call(lambda: access["batches"].delete_many({"batch": batch_id}))


async def recover(access: Access, *, older_than: float) -> None:
    """Carry out the batches that were decided and not finished."""
    now = access.now()
    batches = access["batches"]
    fields = {"batch": 1, "at": 1, "decided": 1}
    old = {"at": {"$lte": now - older_than}}
    found = await access.call(lambda: batches.find(old, fields).to_list())
    decided = {head["batch"] for head in found if head.get("decided")}
    for batch_id in decided:
        batch = {"batch": batch_id}
        for part in await access.call(lambda: batches.find(batch).to_list()):  # noqa: B023 - awaited here
            if part["documents"]:
                await _insert_new(access, part["documents"])
        await access.call(lambda: batches.delete_many(batch))  # noqa: B023 - awaited here
    undecided = [
        head["_id"] for head in found if head["batch"] not in decided and head["at"] < now - UNDECIDED_SECONDS
    ]
    if undecided:
        await access.call(lambda: batches.delete_many({"_id": {"$in": undecided}}))


def _parts(documents: Sequence[bytes], limit: int) -> list[list[bytes]]:
    """Cut a batch into runs that fit into a document each."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for document in documents:
        cost = len(document) + 16  # the element's type, its index as text, and the binary's header
        if parts[-1] and size + cost > limit:
            parts.append([])
            size = 0
        parts[-1].append(document)
        size += cost
    return parts


async def _write(access: Access, document: Document) -> None:
    try:
        await access.call(lambda: access["batches"].insert_one(document))
    except DuplicateKeyError:
        log.debug("batch %s was written before: the call arrived, and its answer did not", document["_id"])


async def _insert_new(access: Access, documents: Sequence[bytes]) -> None:
    raws = [RawBSONDocument(document) for document in documents]
    try:
        await access.call(lambda: access["rollouts"].insert_many(raws, ordered=False))  # pyright: ignore[reportArgumentType]
    except (BulkWriteError, DuplicateKeyError) as error:
        log.debug("some of %d rollouts were there before: %s", len(documents), error)
