"""agl import as the command line sees it: its options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agl.cli.arguments import AsJson, StoreUrl
from agl.cli.interrupts import raised_interrupts

importing = typer.Typer()

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="What agl export what=spans or what=rollouts wrote, or OTLP JSON."
    ),
]
IntoRun = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        metavar="RUN",
        help="A run, or a folder to make. Default: a new runs/TIME-import.",
    ),
]


@importing.command("import", rich_help_panel="Results")
def import_files(
    files: Files,
    *,
    run_dir: IntoRun = None,
    store_url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Read exported spans and rollouts into a store, with all ids, times and ends that they had.

    \b
    For example:
      agl import spans.jsonl
      agl import rollouts.jsonl spans.otlp.jsonl --run-dir runs/copy
      agl import spans.jsonl --store-url http://127.0.0.1:4747
    """
    from agl.cli import importing as command

    with raised_interrupts():
        command.main(files, run_dir=run_dir, store_url=store_url, as_json=as_json)
