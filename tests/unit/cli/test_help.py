"""Every command's help: examples, sentences, one name and form for one meaning, at any width and encoding."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from command_line import Agl
from typer.main import get_command

from agl.cli.app import app, print_anything

FORMS = {
    "--resources": {"WHO", "ID"},  # agl ls lists by id alone
    "--run-dir": {None, "RUN"},  # of a run that begins, it is a new folder
}
"""Options whose value is of more than one form."""
OTHER_NAMES = {
    *("--store", "--url", "--store_url", "--folder", "--dir", "--run_dir", "--output", "--outfile", "--file"),
    *(
        "--format",
        "--as-json",
        "--overwrite",
        "--num",
        "--count",
        "--max",
        "--workers",
        "--config",
        "--verbose",
    ),
    *("--api-key", "--key", "--run_id", "--k", "--num-tasks", "--max-tasks", "--split", "--time-limit"),
}
"""What other tools call --store-url, --run-dir, --out, --json, --force, --limit, --processes, --token, --mode."""


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words, groups left out."""
    command = get_command(app) if command is None else command
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from commands(one, (*path, name))


ALL = dict(commands())
IDS = [" ".join(path) for path in ALL]


def options() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every option of every command."""
    for path, command in ALL.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                yield path, parameter


@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_every_help_says_what_the_command_does_and_shows_how(path: tuple[str, ...]) -> None:
    text = ALL[path].help or ""
    first, _, examples = text.partition("For example:")
    assert first.strip()[0].isupper(), text
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    known = (f"agl {' '.join(path)}", "agl runner ", "agl run ", "agl store", "agl train")
    assert lines, "it has examples"
    assert all(line.startswith("agl ") for line in lines), lines
    assert any(line.startswith(known) for line in lines), lines


def test_every_option_says_what_it_is_in_a_sentence() -> None:
    for path, option in options():
        assert option.help, (path, option.opts)
        assert option.help[0].isupper() or option.help.startswith("proxy."), (path, option.help)
        assert option.help.endswith((".", "?")), (path, option.help)


def test_one_meaning_has_one_name_and_form() -> None:
    forms: dict[str, set[str | None]] = {}
    for path, option in options():
        assert not OTHER_NAMES & set(option.opts), path
        assert all(name == name.lower() and "_" not in name for name in option.opts), path
        for name in option.opts:
            forms.setdefault(name, set()).add(option.metavar)
    several = {name: found for name, found in forms.items() if len(found) > 1}
    assert several == {name: found for name, found in FORMS.items() if name in several}


@pytest.mark.parametrize("width", ["40", "80", "200"])
@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_every_help_fits_the_terminal(
    agl: Agl, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    code, out, _ = agl(*path, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= int(width)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_whatever_is_printed_no_encoding_raises(encoding: str) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    print_anything([out, io.StringIO()])
    out.write("caf\u00e9 \u2713 \udc80")
    shown = raw.getvalue().decode(encoding)
    assert shown.startswith("caf")
    assert shown.endswith(r"\udc80")
