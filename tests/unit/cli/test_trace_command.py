"""agl trace as the command line sees it."""

from pathlib import Path

from command_line import Agl


def test_help_has_examples_and_every_option(agl: Agl, in_folder: Path) -> None:
    code, out, _ = agl("trace", "--help")
    assert code == 0
    assert "agl trace ROLLOUT" in out
    for option in ("--attempt", "--full", "--store-url", "--run-dir", "--json"):
        assert option in out
