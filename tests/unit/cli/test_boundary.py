"""The error boundary: one line and an exit code, whatever was raised."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

import pytest
import typer

from agl.cli.boundary import Boundary
from agl.errors import AglError, ConfigError, StoreUnavailableError


def ending_of(
    raised: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """The exit code and standard error of a command that raises."""
    app = typer.Typer(cls=Boundary, pretty_exceptions_enable=False)

    @app.command()
    def fail() -> None:
        raise raised

    @app.command()
    def rest() -> None:
        """Be silent: an app of one command is no group."""

    with pytest.raises(SystemExit) as ended:
        app(["fail"])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (ConfigError("a is wrong:\n  write b"), 2, "a is wrong: write b"),
        (AglError("it failed"), 1, "it failed"),
        (AglError("\x1b[31mred\x07 caf\xe9 \udc80"), 1, "\\x1b[31mred\\x07 caf\xe9 \\udc80"),
        (ExceptionGroup("two", [ValueError("x"), ConfigError("ours")]), 2, "ours"),
        (StoreUnavailableError("nobody answers"), 1, "nobody answers"),
        (PermissionError(errno.EACCES, "Permission denied", "runs/x"), 1, "runs/x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_was_raised_is_one_line(
    raised: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ending_of(raised, monkeypatch, capsys) == (code, f"agl: {line}\n")


def test_notes_say_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = KeyboardInterrupt()
    error.add_note("go on with: agl train --resume")
    said = ending_of(error, monkeypatch, capsys)
    assert said == (130, "agl: interrupted (go on with: agl train --resume)\n")


@pytest.mark.parametrize("unforeseen", [ZeroDivisionError("by zero"), OSError("odd")])
def test_only_what_nobody_foresaw_has_a_traceback(
    unforeseen: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = ending_of(unforeseen, monkeypatch, capsys)
    assert code == 1
    assert said.startswith("Traceback")
    assert said.endswith(f"agl: {type(unforeseen).__name__}: {unforeseen}\n")


@pytest.mark.parametrize("num_lines", [1, 100_000])
def test_a_reader_that_has_seen_enough_is_no_error(
    num_lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer(cls=Boundary, pretty_exceptions_enable=False)

    @app.command()
    def talk() -> None:
        for number in range(num_lines):
            typer.echo(f"line {number}")

    @app.command()
    def rest() -> None:
        """Be silent: an app of one command is no group."""

    read, write = os.pipe()
    os.close(read)
    out = os.fdopen(write, "w")
    monkeypatch.setattr(sys, "stdout", out)
    with pytest.raises(SystemExit) as ended:
        app(["talk"])
    assert (ended.value.code, capsys.readouterr().err) == (1, "")
    with suppress(BrokenPipeError):
        out.close()
