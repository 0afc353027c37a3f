from __future__ import annotations

from agl.inference.rows import Row


def row() -> Row:
    return Row(prompt_ids=[1], max_tokens=1, temperature=1.0, draw=lambda: 0.5)


def test_rows_that_ask_for_the_same_are_still_two_rows():
    first, second = row(), row()
    assert len({first, second}) == 2
    assert first.token_ids is not second.token_ids
