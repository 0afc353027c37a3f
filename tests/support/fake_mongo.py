"""MongoDB in memory, as much of it as the store uses, for tests without a server - and with crashes at every write.

Collections speak the driver's async interface. Unique indexes, dotted paths, arrays and missing fields behave like the
server's. ``crash_after`` makes the process die at a write, and ``lose_answers`` the network behind one.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import bson
from pymongo import IndexModel, ReplaceOne, UpdateOne
from pymongo.errors import AutoReconnect, BulkWriteError, DuplicateKeyError
from pymongo.write_concern import WriteConcern

Document = dict[str, Any]


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class FakeMongo:
    """The database: collections by name, and how many writes it takes before the writing process dies."""

    def __init__(self) -> None:
        self.collections: dict[str, FakeCollection] = {}
        self.writes_left: int | None = None
        self.lost_answers = 0
        self.kept_answers = 0

    def __getitem__(self, name: str) -> FakeCollection:
        return self.collections.setdefault(name, FakeCollection(self))

    def crash_after(self, writes: int | None) -> None:
        """Let this many more documents be written; None is no limit."""
        self.writes_left = writes

    def lose_answers(self, count: int, *, after: int = 0) -> None:
        """Let calls that write be carried out, and their answers be lost: ``count`` of them, after some others."""
        self.lost_answers, self.kept_answers = count, after

    def answer(self) -> None:
        """Return the answer of a call that wrote, unless it is lost."""
        if self.kept_answers:
            self.kept_answers -= 1
        elif self.lost_answers:
            self.lost_answers -= 1
            raise AutoReconnect("connection closed")

    def write(self) -> None:
        """Note one write of one document."""
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise Crash
            self.writes_left -= 1


class FakeClient:
    """The driver's client of a database in memory; call it to connect, as the driver's class is called."""

    def __init__(self, database: FakeMongo, hello: Document | None = None) -> None:
        self.database = database
        self.hello = hello or {}
        self.options: Document = {}
        self.closed = False
        self.admin = self
        self.write_concern = WriteConcern()
        self.database_concern = WriteConcern()

    def __call__(self, url: str, **options: Any) -> FakeClient:
        self.options = {"url": url, **options}
        return self

    def get_database(self, name: str, codec_options: Any, write_concern: WriteConcern) -> FakeMongo:
        self.database_concern = write_concern
        return self.database

    async def command(self, name: str) -> Document:
        assert name == "hello"
        return self.hello

    async def close(self) -> None:
        self.closed = True


class FakeCursor:
    """The documents found, not yet sorted."""

    def __init__(self, documents: list[Document], projection: Document | None) -> None:
        self._documents = documents
        self._projection = projection

    def sort(self, keys: Sequence[tuple[str, int]]) -> FakeCursor:
        for name, direction in reversed(keys):
            self._documents.sort(key=lambda one: _order(_first(one, name)), reverse=direction < 0)
        return self

    def limit(self, most: int) -> FakeCursor:
        if most:
            self._documents = self._documents[:most]
        return self

    async def to_list(self) -> list[Document]:
        return [_projected(one, self._projection) for one in self._documents]


class FakeCollection:
    """One collection."""

    def __init__(self, database: FakeMongo) -> None:
        self.database = database
        self.documents: dict[Any, Document] = {}
        self.unique: dict[str, tuple[list[str], Document, bool]] = {}

    async def create_indexes(self, models: Iterable[IndexModel]) -> None:
        for model in models:
            index = model.document
            if index.get("unique"):
                where = index.get("partialFilterExpression", {})
                self.unique[index["name"]] = (list(index["key"]), where, bool(index.get("sparse")))

    def find(self, where: Document | None = None, projection: Document | None = None) -> FakeCursor:
        return FakeCursor(self._matching(where or {}), projection)

    async def find_one(
        self, where: Document, projection: Document | None = None, sort: Any = ()
    ) -> Document | None:
        found = await self.find(where, projection).sort(sort).limit(1).to_list()
        return found[0] if found else None

    async def insert_one(self, document: Any) -> None:
        self._store(_plain(document), new=True)
        self.database.answer()

    async def insert_many(self, documents: Sequence[Any], *, ordered: bool) -> None:
        assert not ordered
        self._each(lambda one: self._store(_plain(one), new=True), documents)
        self.database.answer()

    async def update_one(self, where: Document, update: Document, *, upsert: bool = False) -> None:
        await self.find_one_and_update(where, update, upsert=upsert)

    async def find_one_and_update(
        self,
        where: Document,
        update: Document,
        projection: Document | None = None,
        *,
        sort: Any = (),
        upsert: bool = False,
        return_document: bool = False,
    ) -> Document | None:
        assert set(update) <= set(_OPERATORS), update
        found = self.find(where).sort(sort)._documents
        if not found and not upsert:
            return None
        old = found[0] if found else {"_id": where["_id"]}
        new = _updated(old, update)
        self._store(new, new=not found)
        self.database.answer()
        return _projected(new if return_document else old, projection)

    async def bulk_write(self, writes: Sequence[Any], *, ordered: bool) -> Any:
        assert not ordered
        matched = 0

        def apply(write: Any) -> None:
            nonlocal matched
            found = self._matching(write._filter)
            matched += bool(found[:1])
            if isinstance(write, ReplaceOne):
                self._store(copy.deepcopy(write._doc), new=not found)
                return
            assert isinstance(write, UpdateOne)
            if found or write._upsert:
                old = found[0] if found else {"_id": write._filter["_id"]}
                self._store(_updated(old, write._doc), new=not found)

        self._each(apply, writes)
        self.database.answer()
        return SimpleNamespace(matched_count=matched)

    async def delete_many(self, where: Document) -> Any:
        found = self._matching(where)
        for document in found:
            self.database.write()
            del self.documents[document["_id"]]
        self.database.answer()
        return SimpleNamespace(deleted_count=len(found))

    async def distinct(self, path: str, where: Document) -> list[Any]:
        values = [value for one in self._matching(where) for value in _values(one, path)]
        return list(dict.fromkeys(value for value in values if not isinstance(value, list)))

    async def estimated_document_count(self) -> int:
        return len(self.documents)

    async def count_documents(self, where: Document) -> int:
        return len(self._matching(where))

    async def aggregate(self, pipeline: list[Document]) -> FakeCursor:
        match, group = (stage[name] for stage, name in zip(pipeline, ("$match", "$group"), strict=True))
        key, groups = group["_id"], {}
        for one in self._matching(match):
            name = _first(one, key.lstrip("$")) if key is not None else None
            totals = groups.setdefault(name, {"_id": name} | dict.fromkeys(set(group) - {"_id"}, 0))
            for field, summed in group.items():
                if field != "_id":
                    amount = summed["$sum"]
                    totals[field] += (
                        amount if isinstance(amount, int) else (_first(one, amount.lstrip("$")) or 0)
                    )
        return FakeCursor(list(groups.values()), None)

    def _matching(self, where: Document) -> list[Document]:
        return [one for one in self.documents.values() if _matches(one, where)]

    def _store(self, document: Document, *, new: bool) -> None:
        self._check_unique(document, new=new)
        self.database.write()
        self.documents[document["_id"]] = bson.decode(bson.encode(document))

    def _check_unique(self, document: Document, *, new: bool) -> None:
        if new and document["_id"] in self.documents:
            raise DuplicateKeyError("duplicate _id", 11000)
        for name, (keys, where, sparse) in self.unique.items():
            mine = _entries(document, keys, where, sparse=sparse)
            for other in self.documents.values():
                if other["_id"] != document["_id"] and mine & _entries(other, keys, where, sparse=sparse):
                    raise DuplicateKeyError(f"duplicate {name}", 11000)

    def _each(self, do: Callable[[Any], None], items: Sequence[Any]) -> None:
        errors: list[Document] = []
        for number, item in enumerate(items):
            try:
                do(item)
            except DuplicateKeyError as error:
                errors.append({"index": number, "code": 11000, "errmsg": str(error)})
        if errors:
            raise BulkWriteError({"writeErrors": errors, "writeConcernErrors": []})


def _plain(document: Any) -> Document:
    raw = document.raw if hasattr(document, "raw") else bson.encode(document)
    return bson.decode(raw)


# Paths and values.


def _values(document: Any, path: str) -> list[Any]:
    """Return what is at a path: through arrays into each element, and an array both as a whole and each element."""
    name, _, rest = path.partition(".")
    if isinstance(document, list):
        return [value for element in document for value in _values(element, path)]
    if not isinstance(document, dict) or name not in document:
        return []
    value = document[name]
    if rest:
        return _values(value, rest)
    return [value, *value] if isinstance(value, list) else [value]


def _first(document: Document, path: str) -> Any:
    return next(iter(_values(document, path)), None)


def _parent(document: Document, path: str) -> tuple[Document, str]:
    *parents, name = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    return document, name


def _order(value: Any) -> tuple[int, Any]:
    return (0, 0) if value is None else (2, value) if isinstance(value, str) else (1, value)


def _entries(document: Document, keys: list[str], where: Document, *, sparse: bool) -> set[tuple[Any, ...]]:
    if not _matches(document, where) or (sparse and not any(_values(document, key) for key in keys)):
        return set()
    parts = [[one for one in _values(document, key) if not isinstance(one, list)] or [None] for key in keys]
    return set(itertools.product(*parts))


def _projected(document: Document, projection: Document | None) -> Document:
    document = copy.deepcopy(document)
    if not projection:
        return document
    if all(projection.values()):
        return {name: value for name, value in document.items() if name in projection or name == "_id"}
    return {name: value for name, value in document.items() if name not in projection}


# Filters.


def _matches(document: Document, where: Document) -> bool:
    return all(_matches_one(document, path, wanted) for path, wanted in where.items())


def _matches_one(document: Document, path: str, wanted: Any) -> bool:
    if path in ("$and", "$or"):
        return (all if path == "$and" else any)(_matches(document, one) for one in wanted)
    values = _values(document, path)
    if isinstance(wanted, dict) and any(name.startswith("$") for name in wanted):
        return all(_condition(values, operator, operand) for operator, operand in wanted.items())
    return wanted in values or (wanted is None and not values)


def _condition(values: list[Any], operator: str, operand: Any) -> bool:
    simple = [one for one in values if not isinstance(one, list)]
    if operator == "$exists":
        return bool(values) == operand
    if operator == "$in":
        return any(one in operand for one in values) or (None in operand and not values)
    if operator == "$nin":
        return not _condition(values, "$in", operand)
    if operator == "$ne":
        return operand not in values
    if operator == "$all":
        return all(one in values for one in operand)
    if operator == "$elemMatch":
        return any(all(_condition([one], *part) for part in operand.items()) for one in simple)
    compare = _COMPARISONS[operator]
    return any(isinstance(one, str) == isinstance(operand, str) and compare(one, operand) for one in simple)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda one, other: one > other,
    "$gte": lambda one, other: one >= other,
    "$lt": lambda one, other: one < other,
    "$lte": lambda one, other: one <= other,
}


# Updates.


def _updated(old: Document, update: Document) -> Document:
    new = copy.deepcopy(old)
    for operator, fields in update.items():
        for path, operand in fields.items():
            _OPERATORS[operator](*_parent(new, path), copy.deepcopy(operand))
    return new


def _set(parent: Document, name: str, operand: Any) -> None:
    parent[name] = operand


def _unset(parent: Document, name: str, operand: Any) -> None:
    parent.pop(name, None)


def _inc(parent: Document, name: str, operand: Any) -> None:
    parent[name] = parent.get(name, 0) + operand


def _push(parent: Document, name: str, operand: Any) -> None:
    parent[name] = [*parent.get(name, ()), operand]


def _add_to_set(parent: Document, name: str, operand: Any) -> None:
    if operand not in parent.get(name, ()):
        _push(parent, name, operand)


def _min(parent: Document, name: str, operand: Any) -> None:
    parent[name] = min(parent.get(name, operand), operand)


def _max(parent: Document, name: str, operand: Any) -> None:
    parent[name] = max(parent.get(name, operand), operand)


_OPERATORS: dict[str, Callable[[Document, str, Any], None]] = {
    "$set": _set,
    "$unset": _unset,
    "$inc": _inc,
    "$push": _push,
    "$addToSet": _add_to_set,
    "$min": _min,
    "$max": _max,
}
