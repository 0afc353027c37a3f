"""What spans are found by: a term for the run, the name and each attribute of a span, in SQLite's full-text index.

A term is a hash, so an answer of the index is checked against the span; it finds in the order in which spans came, and
intersects. Terms follow from the row as it is stored, so that the trigger that forgets a span finds the same ones. A
text that is stored elsewhere, and a list that is not of short texts, have one term for all their values: they are found
by their key, and then compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isfinite
from types import NoneType
from typing import Any, cast
from zlib import crc32

import orjson

from agl.store.cutting import LONG
from agl.store.packed import MARK, PACKED_KEYS

MAX_LIST = 8
MAX_LIST_TEXT = 100
CACHED_TERMS = 16_384
"""Most attributes of a run's spans repeat; the rest (ids, times) push each other out."""
SCALAR: frozenset[type] = frozenset((str, int, float, bool, NoneType))
"""What JSON's scalars read as. A value of another type (an enum, a time) is what its JSON reads as."""


def span_terms(run_id: str | None, name: str, attributes: Mapping[str, Any]) -> str:
    """Return the terms of a span, as the index takes them."""
    terms = [_owner_terms(run_id, name)]
    for key, value in attributes.items():  # _scalar_term in place, for its call costs more than it does
        if type(value) is str and (len(value) >= LONG or MARK in value or key.startswith(PACKED_KEYS)):
            terms.append(_text_term(key))
        elif type(value) in SCALAR:
            terms.append(_short_term(key, value))
        else:
            terms.append(_nested_term(key, value))
    return " ".join(terms)


def stored_terms(run_id: str | None, name: str, attributes: str) -> str:
    """Return the terms of a stored span. An SQL function."""
    return span_terms(run_id, name, orjson.loads(attributes))


def match(run_id: str | None, names: Iterable[str], attributes: Mapping[str, Any]) -> str:
    """Return the query of the index for spans of the run with any of the names and all of the attributes."""
    terms = [] if run_id is None else [_term("run", run_id)]
    for key, value in attributes.items():
        terms.append(_scalar_term(key, value) if type(value) in SCALAR else _nested_term(key, value))
    parts = [f'"{term}"' for term in terms]
    named = " OR ".join(f'"{_term("name", name)}"' for name in names)
    return " AND ".join([*parts, f"({named})"] if named else parts)


@lru_cache(maxsize=1024)
def _owner_terms(run_id: str | None, name: str) -> str:
    named = _term("name", name)
    return named if run_id is None else f"{named} {_term('run', run_id)}"


def _scalar_term(key: str, value: str | float | None) -> str:
    if isinstance(value, str) and (len(value) >= LONG or MARK in value or key.startswith(PACKED_KEYS)):
        return _text_term(key)  # the cache of the others would keep the text
    return _short_term(key, value)


@lru_cache(maxsize=1024)
def _text_term(key: str) -> str:
    return _term("text", key)


@lru_cache(maxsize=CACHED_TERMS, typed=True)
def _short_term(key: str, value: str | float | None) -> str:
    if isinstance(value, str):
        return _term("is", f"{key}\0{value}")
    if value is None or isinstance(value, bool) or not isfinite(value):
        return _term(str(value) if isinstance(value, bool) else "null", key)
    return _term("number", f"{key}\0{value + 0.0}")  # 1 is 1.0, and -0.0 is 0


def _nested_term(key: str, value: Any) -> str:
    plain = value if _is_list_of_texts(value) else orjson.loads(orjson.dumps(value))
    if type(plain) in SCALAR:
        return _scalar_term(key, plain)
    if isinstance(plain, list):
        texts = cast("list[Any]", plain)
        if len(texts) <= MAX_LIST and all(map(_is_short_text, texts)):
            return _term("list", "\0".join((key, *texts)))
    return _term("nested", key)


def _is_list_of_texts(value: object) -> bool:
    """Whether a value is what its JSON reads as, as why a call's choices ended."""
    if type(value) is not list:
        return False
    texts = cast("list[object]", value)
    return len(texts) <= MAX_LIST and all(type(text) is str for text in texts)


def _is_short_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_LIST_TEXT and MARK not in value


def _term(kind: str, text: str) -> str:
    return format(crc32(f"{kind}\0{text}".encode()), "x")
