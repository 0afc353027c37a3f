"""What a command printed, kept in ``tests/snapshots/NAME.txt``; ``AGL_SNAPSHOTS=write`` writes it anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "snapshots"
WIDTHS = (80, 140)


def require_snapshot(name: str, lines: Sequence[str]) -> None:
    """Check lines against the file of that name, and that nothing in them is what a terminal would obey."""
    text = "".join(f"{line}\n" for line in lines)
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    file = FOLDER / f"{name}.txt"
    if os.environ.get("AGL_SNAPSHOTS") == "write":
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), (
        f"tests/snapshots/{name}.txt: AGL_SNAPSHOTS=write renews it"
    )
