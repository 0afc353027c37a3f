"""Tasks: requests for rooms with the right answer; the days of a split occur in no other."""

from datetime import date, timedelta
from random import Random
from typing import Any, Literal

from .office import EQUIPMENT, NONE, Request, right_room

Split = Literal["train", "val", "test"]
FIRST_DAY = {"train": date(2026, 1, 5), "val": date(2026, 6, 1), "test": date(2026, 9, 7)}
DAYS = 80
DEFAULT_LIMITS = {"train": 96, "val": 100, "test": 200}
MAX_NONE = 0.2
"""At most this part of a split has no right room: else "none" would be a good guess."""


def requests(split: Split, seed: int = 0, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the tasks of a split, shuffled by ``seed``."""
    if split not in FIRST_DAY:
        raise ValueError(f"there is no split {split!r} of the requests; known: {', '.join(FIRST_DAY)}")
    rng = Random(f"rooms {split} {seed}")
    wanted = DEFAULT_LIMITS[split] if limit is None else limit
    tasks: list[dict[str, Any]] = []
    without = 0
    while len(tasks) < wanted:
        request = _request(split, rng)
        answer = right_room(request)
        if answer == NONE and without + 1 > MAX_NONE * wanted:
            continue
        without += answer == NONE
        tasks.append({"request": str(request), "answer": answer})
    return tasks


def _request(split: Split, rng: Random) -> Request:
    return Request(
        date=str(FIRST_DAY[split] + timedelta(days=rng.randrange(DAYS))),
        start=9 * 60 + 30 * rng.randrange(16),
        minutes=rng.choice((30, 60, 60, 90, 90, 120)),
        people=rng.choice((2, 3, 4, 4, 5, 6, 7, 8, 9, 11)),
        needs=tuple(sorted(rng.sample(EQUIPMENT, rng.choice((0, 1, 1, 2))))),
        step_free=rng.random() < 0.4,
    )
