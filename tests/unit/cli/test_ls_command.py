"""agl ls as the command line sees it."""

from pathlib import Path

from command_line import Agl


def test_help_has_examples_and_every_option(agl: Agl, in_folder: Path) -> None:
    code, out, _ = agl("ls", "--help")
    assert code == 0
    assert "agl ls rollouts --status failed --status cancelled" in out
    for option in ("--run", "--worker", "--min-reward", "--failed", "--order", "--store-url", "--json"):
        assert option in out


def test_a_limit_is_at_least_one(agl: Agl, in_folder: Path) -> None:
    assert agl("ls", "--limit", "0")[0] == 2
