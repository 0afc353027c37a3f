"""agl doctor's help: what it takes, with examples."""

from __future__ import annotations

from command_line import Agl


def test_the_help_has_examples_and_the_usual_options(agl: Agl) -> None:
    code, out, _ = agl("doctor", "--help")
    assert code == 0
    assert "agl doctor +recipe=ppo_sql" in out
    for option in ("--store-url", "--timeout", "--json", "--config-dir"):
        assert option in out
