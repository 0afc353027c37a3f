"""agl import as the command line sees it."""

from pathlib import Path

from command_line import Agl


def test_help_has_examples_and_every_option(agl: Agl, in_folder: Path) -> None:
    code, out, _ = agl("import", "--help")
    assert code == 0
    assert "agl import rollouts.jsonl spans.otlp.jsonl --run-dir runs/copy" in out
    for option in ("--run-dir", "--store-url", "--json"):
        assert option in out


def test_a_file_must_be_named(agl: Agl, in_folder: Path) -> None:
    assert agl("import")[0] == 2
