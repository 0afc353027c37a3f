"""Long texts are stored once, come back exactly and go with their last reference."""

from __future__ import annotations

import random
import sqlite3
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.store.cutting import LONG
from agl.store.sqlite import blobs
from agl.store.sqlite.connection import open_database

PIECE = st.one_of(
    st.text(max_size=4),
    st.sampled_from(["x" * LONG, '"' + "y" * LONG + '"', '\\"', '","', "[", '{"role":"user"}']),
    st.sampled_from(["\x7f", "\x7f\x7f1\x7f"]),
)
TEXT = st.lists(PIECE, max_size=12).map("".join)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(TEXT, st.just("\x7f")), inner, max_size=3)
    ),
    max_leaves=6,
)


def saved(db: sqlite3.Connection, *values: Any) -> list[str]:
    return [orjson.dumps(value).decode() for value in blobs.stow(db, values)]


def loaded(db: sqlite3.Connection, *texts: str) -> list[Any]:
    return blobs.filled(db, [orjson.loads(text) for text in texts])


def contents(db: sqlite3.Connection) -> list[tuple[int, int]]:
    """Each blob's uses and size."""
    return db.execute(
        "SELECT uses, length(content) FROM blob JOIN blob_content USING (blob) ORDER BY blob"
    ).fetchall()


@given(values=st.lists(JSON, max_size=4))
def test_every_value_comes_back_and_leaves_nothing_behind(values: list[Any]) -> None:
    db = open_database(":memory:", now=1.0)
    texts = saved(db, *values)
    assert loaded(db, *texts) == values
    for value, text in zip(values, texts, strict=True):  # found again by its value
        found = blobs.stowed_already(db, value)
        assert found is not None
        assert orjson.dumps(found[0]).decode() == text
    blobs.release(db, texts)
    assert contents(db) == []
    db.close()


def test_a_short_text_stays_where_it_is(db: sqlite3.Connection) -> None:
    value = {"a": "x" * (LONG - 1), "b": [1, None, True, 2.5]}
    assert blobs.stow(db, [value]) == [value]
    assert contents(db) == []


def test_an_image_in_a_thousand_values_is_stored_once(db: sqlite3.Connection) -> None:
    image = random.Random(1).randbytes(5_000).hex()
    texts = saved(db, *({"image": image, "number": number} for number in range(1000)))
    ((uses, size),) = contents(db)
    assert uses == 1000
    assert size < len(image)  # hex digits carry 4 of 8 bits
    assert max(map(len, texts)) < 50
    blobs.release(db, texts[1:])
    assert loaded(db, texts[0]) == [{"image": image, "number": 0}]
    blobs.release(db, texts[:1])
    assert contents(db) == []


def test_a_growing_conversation_stores_each_message_once(db: sqlite3.Connection) -> None:
    rng = random.Random(2)
    words = [rng.randbytes(4).hex() for _ in range(500)]
    messages = [{"role": "system", "content": " ".join(rng.choices(words, k=300))}]
    stored, sent = 0, 0
    for _ in range(50):
        messages.append({"role": "user", "content": " ".join(rng.choices(words, k=40))})
        text = orjson.dumps(messages).decode()
        (kept,) = saved(db, text)
        assert loaded(db, kept) == [text]
        stored, sent = stored + len(kept), sent + len(text)
    final = len(orjson.dumps(messages))
    # A call keeps less than LONG characters of a tail and 6 for each of the up to 20 pieces before it.
    assert stored < 50 * (LONG + 6 * 20)
    assert sum(size for _, size in contents(db)) < final
    assert sent > 10 * (stored + final) / 2


def test_a_system_prompt_is_shared_by_conversations(db: sqlite3.Connection) -> None:
    prompt = "You are careful. " * 200
    for number in range(10):
        saved(db, orjson.dumps([{"n": number}, {"role": "system", "content": prompt}]).decode())
    assert [uses for uses, _ in contents(db)] == [10]


def test_rows_are_filled_in_one_query(db: sqlite3.Connection) -> None:
    texts = saved(db, *({"text": str(number) * LONG} for number in range(10)))
    rows = [(number, text, None) for number, text in enumerate(texts)] + [(10, '{"text":"short"}', None)]
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    full = blobs.filled_rows(db, rows, (1, 2))
    assert len(statements) == 1
    assert [blobs.json_value(row[1])["text"] for row in full] == [
        *(str(n) * LONG for n in range(10)),
        "short",
    ]
    assert full[0][::2] == (0, None)


def test_a_text_that_nobody_stored_is_not_found(db: sqlite3.Connection) -> None:
    saved(db, "a" * LONG)
    assert blobs.stowed_already(db, "b" * LONG) is None
    assert blobs.stowed_already(db, "short") == ("short",)


@pytest.mark.parametrize("text", ["plain text " * 1000, "ü" * 5000, orjson.dumps("\x00" * 2000).decode()])
def test_content_is_compressed_where_that_helps(db: sqlite3.Connection, text: str) -> None:
    (kept,) = saved(db, text)
    assert contents(db)[0][1] < len(text) / 10
    assert loaded(db, kept) == [text]
    noise = random.Random(3).choices([chr(one) for one in range(0x4E00, 0x9000)], k=2000)
    (kept,) = saved(db, "".join(noise))
    assert loaded(db, kept) == ["".join(noise)]
