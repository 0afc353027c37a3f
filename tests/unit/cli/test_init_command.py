"""agl init's help: every framework by name, and examples."""

from __future__ import annotations

import pytest
from command_line import Agl

from agl.cli.starters import Starter


def test_the_help_names_every_framework(agl: Agl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = agl("init", "--help")
    assert code == 0
    assert all(starter.value in out for starter in Starter)


def test_a_name_is_asked_for(agl: Agl) -> None:
    code, _, err = agl("init")
    assert code == 2
    assert "NAME" in err
