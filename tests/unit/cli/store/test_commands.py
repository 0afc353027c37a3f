"""agl store: what its arguments mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from command_line import Agl


def test_help_shows_how_to_serve_and_the_other_commands(agl: Agl) -> None:
    code, out, _ = agl("store", "--help")
    assert code == 0
    for word in ("--host", "--port", "--token", "--read-only", "--config-dir", "--cfg", "AGL_STORE_TOKEN"):
        assert word in out
    assert "gc" in out
    assert "backup" in out
    assert "serve " not in out.partition("Commands")[2]
    assert agl("store", "-h")[1] == out


def test_every_command_has_help(agl: Agl) -> None:
    assert "--older-than" in agl("store", "gc", "--help")[1]
    assert "--store-url" in agl("store", "backup", "--help")[1]


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ([], "port", 4747),
        (["port=5"], "port", 5),
        (["--port", "5"], "port", 5),
        (["store.path=x", "--port", "5"], "port", 5),
        (["serve", "port=5"], "port", 5),
        (["--host", "localhost", "port=5"], "host", "localhost"),
        (["--read-only"], "read_only", True),
    ],
)
def test_serving_needs_no_command_of_its_own(agl: Agl, arguments: list[str], key: str, value: object) -> None:
    code, out, err = agl("store", *arguments, "--cfg")
    assert (code, err) == (0, "")
    assert yaml.safe_load(out)[key] == value


def test_the_file_is_in_this_folder_unless_said_otherwise(agl: Agl) -> None:
    assert yaml.safe_load(agl("store", "--cfg")[1])["store"]["path"] == "./store.sqlite"
    assert yaml.safe_load(agl("store", "store.path=x/y", "--cfg")[1])["store"]["path"] == "x/y"
    assert "path" not in yaml.safe_load(agl("store", "store=memory", "--cfg")[1])["store"]


def test_the_token_comes_from_the_environment_and_is_never_printed(
    agl: Agl, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert yaml.safe_load(agl("store", "--cfg", "--token", "sesame-sesame")[1])["token"] == "***"
    monkeypatch.setenv("AGL_STORE_TOKEN", "open-sesame")
    code, out, _ = agl("store", "--cfg")
    assert code == 0
    assert "open-sesame" not in out
    assert "${oc.env:AGL_STORE_TOKEN,null}" in out


def test_a_word_that_is_no_command_is_refused_with_the_nearest(agl: Agl) -> None:
    code, out, err = agl("store", "gcc")
    assert (code, out) == (2, "")
    assert err == "agl: agl store: no such command 'gcc'. Did you mean 'gc'? (see agl store --help)\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["prot=5"], "prot is not a setting; did you mean port?"),
        (["store=sqlit"], "there is no store called sqlit; did you mean sqlite?"),
        (["store.pth=x"], "store.pth is not a setting; did you mean store.path?"),
        (["--config-dir", "nowhere"], "--config-dir nowhere is not a folder"),
        (["port=abc"], 'port is "abc": input should be a valid integer'),
        (["--port", "70000"], "port"),
        (["--host", "0.0.0.0"], "token"),
        (["store.path="], "store.path is ''"),
        (["gc"], "say what may go"),
        (["gc", "--run", "x"], "there is no store in store.sqlite"),
        (["gc", "--older-than", "long"], "--older-than long: a number and s, m, h, d or w"),
        (["gc", "--run", "x", "--store-url", "http://127.0.0.1:1", "store=memory"], "leave this out"),
        (["backup", "copy", "store.path=nothing"], "there is no store in nothing"),
        (["backup", "no/copy"], "there is no folder no"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two_and_leaves_nothing(
    agl: Agl, in_folder: Path, arguments: list[str], reason: str
) -> None:
    code, out, err = agl("store", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("agl: ")
    assert err.count("\n") == 1
    assert reason in err
    assert list(in_folder.iterdir()) == []
