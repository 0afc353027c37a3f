"""A batch without a model: every row finishes after ``max_tokens`` steps; what happens is written down."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from agl.inference.rows import Call, Row


class ScriptedBatch:
    """Fails a step with the next of ``errors``; calls ``on_step`` before each."""

    def __init__(self, max_rows: int = 4) -> None:
        self.rows: list[Row] = []
        self.max_rows = max_rows
        self.errors: list[Exception] = []
        self.admitted: list[int] = []
        self.cleared = 0
        self.on_step: Callable[[], None] = lambda: None

    @property
    def num_free(self) -> int:
        return self.max_rows - len(self.rows)

    def admit(self, rows: Sequence[Row]) -> None:
        assert len(rows) <= self.num_free
        self.admitted.append(len(rows))
        self.rows.extend(rows)

    def step(self) -> list[Row]:
        self.on_step()
        if self.errors:
            raise self.errors.pop(0)
        for row in self.rows:
            row.token_ids.append(1)
            if len(row.token_ids) >= row.max_tokens:
                row.finish_reason = "length"
        finished = [row for row in self.rows if row.finish_reason]
        self.drop(finished)
        return finished

    def drop(self, rows: Collection[Row]) -> None:
        self.rows = [row for row in self.rows if row not in rows]

    def clear(self) -> None:
        self.rows = []
        self.cleared += 1


def call(*lengths: int) -> Call:
    """A call with one row for each length."""
    rows = [Row(prompt_ids=[1], max_tokens=length, temperature=1.0, draw=lambda: 0.5) for length in lengths]
    return Call(rows=rows, num_unfinished=len(rows))
