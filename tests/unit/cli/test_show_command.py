"""agl show as the command line sees it."""

from pathlib import Path

from command_line import Agl


def test_help_has_examples_and_every_option(agl: Agl, in_folder: Path) -> None:
    code, out, _ = agl("show", "--help")
    assert code == 0
    assert "agl show runs/NAME --metric update/kl" in out
    for option in ("--attempt", "--metric", "--full", "--store-url", "--run-dir", "--json"):
        assert option in out
