"""Spans in MongoDB: numbered per attempt, stored once, kept whatever became of the attempt.

First the numbers are allocated in the attempt's document, then the spans are inserted: a process killed in between
leaves a gap in the numbers, and the caller, who has no answer, sends the spans again. One killed among the insertions
leaves a part of them, which the repeat completes: a span that is there is answered by its id. Two unique indexes
arbitrate: a span's ids are stored once, and so is a number of an attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import bson
from bson.raw_bson import RawBSONDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError

from agl.errors import InvalidRequestError
from agl.store.mongo import changing, large, signs
from agl.store.mongo.access import Access
from agl.store.mongo.batches import encoded
from agl.store.mongo.documents import Document, present
from agl.store.mongo.signs import Key, Owner
from agl.store.mongo.span_documents import constant_part, span_key, span_of
from agl.types import Span


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A span on its way in."""

    span: Span
    constant: bytes
    owner: Owner
    number: int = 0
    stored: Span | None = None
    """What is answered, once it is known."""

    def data(self, position: int) -> bytes:
        """Return the whole document: the constant part, and behind it what the owner decides."""
        owner = self.owner
        run_id = None if owner.document is None else owner.document.get("run_id")
        tail = bson.encode(
            present(
                {
                    "rollout_id": owner.rollout_id,
                    "attempt_id": owner.attempt_id,
                    "run_id": run_id,
                    "number": owner.number,
                    "sequence_id": self.number or position,
                    "position": position,
                }
            )
        )
        # BSON is a length, elements, and a zero byte (https://bsonspec.org/spec.html): elements can be put together.
        body = self.constant[4:-1] + tail[4:-1]
        return (len(body) + 5).to_bytes(4, "little") + body + b"\x00"

    def answer(self) -> Span:
        """Return the span as it was stored."""
        changes = {"rollout_id": self.owner.rollout_id, "sequence_id": self.number or None}
        return self.span.model_copy(update=changes)


async def add(access: Access, spans: Sequence[Span]) -> list[Span]:
    """Store spans; those stored before are answered as they were. A span of an open attempt is a sign of life."""
    constants: list[bytes] = []
    pieces: large.Pieces = {}
    for span in spans:
        if span.sequence_id is not None and span.sequence_id < 1 and span.attempt_id is not None:
            raise InvalidRequestError(
                f"sequence_id {span.sequence_id}: the spans of an attempt are numbered from 1"
            )
        constants.append(encoded(access, constant_part(span, pieces), f"span {span.span_id} ({span.name})"))
    for name, text in pieces.items():
        encoded(access, {"_id": name, "text": text}, "a text of a span")
    if not spans:
        return []
    await access.deadlines.ready()
    keys: list[Key] = [(span.rollout_id, span.attempt_id) for span in spans]
    owners = await signs.find_owners(access, keys)
    entries = [
        _Entry(span=span, constant=constant, owner=owners[key])
        for span, constant, key in zip(spans, constants, keys, strict=True)
    ]
    await large.keep(access, pieces)
    await _number_all(access, entries, wanted=True)
    waiting = entries
    while waiting:
        refused = await _insert(access, waiting)
        for entry in waiting:
            if entry not in refused:
                entry.stored = entry.answer()
        known = await _find(access, refused)
        for entry in refused:
            entry.stored = known.get(span_key(entry.span.trace_id, entry.span.span_id))
        waiting = [entry for entry in refused if entry.stored is None]  # another span has the number
        await _number_all(access, waiting, wanted=False)
    return [entry.stored for entry in entries if entry.stored is not None]


async def sequence_ids(access: Access, attempts: Sequence[tuple[str, str]]) -> list[int]:
    """Allocate the next number of each (rollout_id, attempt_id), in the order given."""
    await access.deadlines.ready()
    keys: list[Key] = list(attempts)
    owners = await signs.find_owners(access, keys)
    next_numbers: dict[Key, int] = {}
    for key in dict.fromkeys(keys):
        amount = keys.count(key)
        next_numbers[key] = await _allocate(access, owners[key], amount) - amount + 1
    answers: list[int] = []
    for key in keys:
        answers.append(next_numbers[key])
        next_numbers[key] += 1
    return answers


async def _number_all(access: Access, entries: Sequence[_Entry], *, wanted: bool) -> None:
    """Number the spans of attempts; with ``wanted`` a given number is kept where it is free."""
    by_attempt: dict[str, list[_Entry]] = {}
    for entry in entries:
        if entry.owner.attempt_id is not None:
            by_attempt.setdefault(entry.owner.attempt_id, []).append(entry)
    for mine in by_attempt.values():
        if wanted and any(entry.span.sequence_id is not None for entry in mine):
            await _keep_numbers(access, mine)
        else:
            highest = await _allocate(access, mine[0].owner, len(mine))
            for number, entry in enumerate(mine, highest - len(mine) + 1):
                entry.number = number


async def _allocate(access: Access, owner: Owner, amount: int) -> int:
    """Allocate consecutive numbers of an attempt and return the last."""
    for _ in range(changing.MAX_TRIES):
        highest = await signs.count(access, owner, add=amount)
        if highest is not None:
            return highest
        owner = await _again(access, owner)
    raise changing.contended(str(owner.rollout_id))


async def _keep_numbers(access: Access, entries: Sequence[_Entry]) -> None:
    """Number the spans of one attempt, some of which bring a number along."""
    owner = entries[0].owner
    for _ in range(changing.MAX_TRIES):
        numbers, highest = await _numbering(access, owner, entries)
        if await signs.count(access, owner, to=highest) is not None:
            for entry, number in zip(entries, numbers, strict=True):
                entry.number = number
            return
        owner = await _again(access, owner)
    raise changing.contended(str(owner.rollout_id))


async def _numbering(access: Access, owner: Owner, entries: Sequence[_Entry]) -> tuple[list[int], int]:
    """Return a number for each span, in order, and the highest number then given out."""
    highest = owner.highest
    earlier = [one.span.sequence_id for one in entries if (one.span.sequence_id or highest + 1) <= highest]
    taken: set[int] = set()
    if earlier:
        where = {"rollout_id": owner.rollout_id, "number": owner.number, "sequence_id": {"$in": earlier}}
        found = await access.call(lambda: access["spans"].find(where, {"sequence_id": 1}).to_list())
        taken = {document["sequence_id"] for document in found}
    numbers: list[int] = []
    for entry in entries:
        wanted = entry.span.sequence_id
        if wanted is None or (wanted <= highest and wanted in taken):
            wanted = highest + 1
        taken.add(wanted)
        highest = max(highest, wanted)
        numbers.append(wanted)
    return numbers, highest


async def _again(access: Access, owner: Owner) -> Owner:
    key: Key = (owner.rollout_id, owner.attempt_id)
    return (await signs.find_owners(access, [key]))[key]


async def _insert(access: Access, entries: Sequence[_Entry]) -> list[_Entry]:
    """Insert spans and return those that a unique index refused."""
    data = [RawBSONDocument(entry.data(access.stamp())) for entry in entries]
    try:
        await access.call(lambda: access["spans"].insert_many(data, ordered=False))  # pyright: ignore[reportArgumentType]
    except BulkWriteError as error:
        details = error.details or {}
        return [entries[one["index"]] for one in details["writeErrors"]]
    except DuplicateKeyError:
        return list(entries)
    return []


async def _find(access: Access, entries: Sequence[_Entry]) -> dict[str, Span]:
    if not entries:
        return {}
    ids = [span_key(entry.span.trace_id, entry.span.span_id) for entry in entries]
    found: list[Document] = await access.call(lambda: access["spans"].find({"_id": {"$in": ids}}).to_list())
    contents = await large.contents(access, found)
    return {document["_id"]: span_of(document, contents) for document in found}
