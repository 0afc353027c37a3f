"""The error boundary of the command line: whatever goes wrong is one line on standard error and an exit code."""

from __future__ import annotations

import errno
import select
import sys
import traceback
from typing import Any, cast

import typer
from typer.core import TyperGroup

from agl.cli.interrupts import INTERRUPTED
from agl.errors import AglError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Of errors when what was opened cannot be written."""


class Boundary(TyperGroup):
    """The error boundary: whatever a command raises becomes one line on stderr and an exit code."""

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Read the options of ``agl`` itself."""
        try:
            return super().make_context(*arguments, **settings)
        except BaseException as raised:
            ended = _ended(raised)
            if ended is raised:
                raise
            raise ended from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Exit codes: 0 done, 1 failed, 2 wrong settings or missing extra, 130 interrupted.
        """
        try:
            return super().invoke(ctx)
        except BaseException as raised:
            ended = _ended(raised)
            if ended is raised:
                raise
            raise ended from None


def _ended(raised: BaseException) -> BaseException:
    """Say what went wrong, and return what ends the command."""
    error = _cause(raised)
    mistyped = _mistyped(error)
    if mistyped is not None:
        _tell(mistyped)
        return typer.Exit(cast("Any", error).exit_code)
    if _is_of_parser(error):
        return raised
    if isinstance(error, BrokenPipeError) and _nobody_reads():
        return typer.Exit(1)
    notes = list(dict.fromkeys([*getattr(raised, "__notes__", []), *getattr(error, "__notes__", [])]))
    if not notes and not isinstance(error, AglError | KeyboardInterrupt) and not _is_of_system(error):
        traceback.print_exception(raised)
    words, code = _ending(error)
    _tell(f"{words} ({'; '.join(notes)})" if notes else words)
    return typer.Exit(code)


def _tell(words: str) -> None:
    """Print an error as one line with nothing in it that a terminal would obey, whatever names and values it is of."""
    line = " ".join(words.split())
    shown = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in line
    )
    print(f"agl: {shown}", file=sys.stderr)


def _is_of_system(error: BaseException) -> bool:
    """Whether it is the system's own, about a file or a full disk: words that say enough."""
    return isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL)


def _ending(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, AglError):
        return str(error), error.exit_code
    if _is_of_system(error):
        about = "" if cast("OSError", error).filename is None else f"{cast('OSError', error).filename}: "
        return f"{about}{cast('OSError', error).strerror}", 1
    return f"{type(error).__name__}: {error}", 1


def _cause(error: BaseException) -> BaseException:
    """The one error of a group that says most: an interrupt, else one of ours, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    causes = [_cause(inner) for inner in group.exceptions]
    for kind in (KeyboardInterrupt, AglError):
        for cause in causes:
            if isinstance(cause, kind):
                return cause
    return causes[0]


def _nobody_reads() -> bool:
    """Whether the reader of standard output has gone, as ``head`` does when it has seen enough."""
    try:
        sys.stdout.flush()
        if not hasattr(select, "poll"):  # Windows
            return False
        reader = select.poll()
        reader.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in reader.poll(0))
    except BrokenPipeError:
        return True
    except (OSError, ValueError):  # no file, or a closed one
        return False


def _is_of_parser(error: BaseException) -> bool:
    """Whether it is the command line parser's own, which knows how to end (help, exit codes)."""
    usage = hasattr(error, "show") and hasattr(error, "exit_code")
    return usage or isinstance(error, typer.Exit | typer.Abort | SystemExit | GeneratorExit)


def _mistyped(error: BaseException) -> str | None:
    """What the parser did not understand of the command line; None where it is another error, or help was asked for."""
    if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
        return None
    mistake = cast("Any", error)
    words = " ".join(mistake.format_message().replace("Value error, ", "").split()).removesuffix(".")
    names, context = list[str](), mistake.ctx
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    command = " ".join(["agl", *names])
    return f"{command}: {words[:1].lower()}{words[1:]} (see {command} --help)"
