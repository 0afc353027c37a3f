"""A plot of numbers over steps, in text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from agl.cli.text import number

HEIGHT = 10
"""Lines of the curves."""
MARKS = "•○+x"
"""Of the first curve, the second, ...; where two meet, the later one is seen."""
Points = Sequence[tuple[int, float]]
"""Step and value."""


def plot(curves: Mapping[str, Points], *, width: int, height: int = HEIGHT) -> list[str]:
    """Return curves by name over the same steps and values; nothing where no curve has two finite values.

    Where there are more points than columns, a column shows the mean of its points.
    """
    finite = {name: [point for point in points if math.isfinite(point[1])] for name, points in curves.items()}
    shown = {name: points for name, points in finite.items() if len(points) > 1}
    if not shown:
        return []
    values = [value for points in shown.values() for _, value in points]
    steps = [step for points in shown.values() for step, _ in points]
    low, high, first, last = min(values), max(values), min(steps), max(steps)
    labels = _labels(low, high, height)
    margin = max(map(len, labels))
    columns = max(10, width - margin - 2)
    cells = [[" "] * columns for _ in range(height)]
    for place, points in enumerate(shown.values()):
        for column, value in _by_column(points, first, last, columns):
            row = 0 if high == low else round((value - low) / (high - low) * (height - 1))
            cells[height - 1 - row][column] = MARKS[place % len(MARKS)]
    lines = [f"{label:>{margin}} │{''.join(row)}".rstrip() for label, row in zip(labels, cells, strict=True)]
    ends = f"{first}{last:>{columns - len(str(first))}}"
    legend = "   ".join(f"{MARKS[place % len(MARKS)]} {name}" for place, name in enumerate(shown))
    return [*lines, f"{'':{margin}} └{'─' * columns}", f"{'':{margin}}  {ends}", f"{'':{margin}}  {legend}"]


def _labels(low: float, high: float, height: int) -> list[str]:
    """The values at the top, in the middle and at the bottom; all other lines have none."""
    labels = [""] * height
    labels[0], labels[-1] = number(high), number(low)
    middle = (height - 1) // 2
    labels[middle] = number(high - (high - low) * middle / (height - 1))
    return labels


def _by_column(points: Points, first: int, last: int, columns: int) -> list[tuple[int, float]]:
    found: dict[int, list[float]] = {}
    for step, value in points:
        column = 0 if last == first else round((step - first) / (last - first) * (columns - 1))
        found.setdefault(column, []).append(value)
    return [(column, fmean(values)) for column, values in sorted(found.items())]
