"""agl export as the command line sees it."""

from pathlib import Path

from command_line import Agl


def test_help_has_examples_and_every_option(agl: Agl, in_folder: Path) -> None:
    code, out, _ = agl("export", "--help")
    assert code == 0
    assert "agl export what=prompts format=python --out my_prompts.py" in out
    for option in ("--out", "--run-dir", "--store-url", "--force", "--json", "--config-dir", "--cfg"):
        assert option in out
