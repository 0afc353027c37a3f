"""agl store: what it says when it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.cli.store.serve import start_lines, token_hint


@pytest.mark.parametrize(
    ("token", "hint"),
    [
        (None, "none: only this machine can connect"),
        ("short-secret", "set"),
        ("a-secret-of-some-length", "set (...ngth)"),
    ],
)
def test_a_token_can_be_recognised_and_not_used(token: str | None, hint: str) -> None:
    assert token_hint(token) == hint


def test_the_start_lines_say_where_it_is_and_how_to_connect(in_folder: Path) -> None:
    (in_folder / "s.sqlite").touch()
    assert start_lines(
        "http://127.0.0.1:4747", location="./s.sqlite", identity="id-1", token=None, read_only=False
    ) == [
        "agl store serves http://127.0.0.1:4747",
        f"  records  {in_folder}/s.sqlite",
        "  identity id-1",
        "  token    none: only this machine can connect",
        "  docs     http://127.0.0.1:4747/docs",
        '  connect  agl.LightningStoreClient("http://127.0.0.1:4747")',
    ]


def test_the_start_lines_hold_no_token(in_folder: Path) -> None:
    lines = start_lines(
        "http://h:1", location="memory", identity="i", token="a-secret-of-some-length", read_only=True
    )
    assert lines[0] == "agl store serves http://h:1 (read-only)"
    assert lines[1] == "  records  memory"
    assert (
        lines[-1] == '  connect  agl.LightningStoreClient("http://h:1", token=os.environ["AGL_STORE_TOKEN"])'
    )
    assert "a-secret" not in "".join(lines)
