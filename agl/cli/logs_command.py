"""agl logs as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, RunDir, StoreUrl
from agl.cli.completion import complete_runs

reading = typer.Typer()

Id = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="A run's folder or name, or the id of a rollout or attempt. Default: the newest run.",
        autocompletion=complete_runs,
    ),
]
Tail = Annotated[
    int | None,
    typer.Option(
        "--tail",
        "-n",
        metavar="N",
        min=0,
        help="The last N lines, 0 is all. Default: 50 of a run's log, all of a rollout's output.",
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on until the run or rollout ends, or Ctrl-C.")
]


@reading.command("logs", rich_help_panel="Look at records")
def logs(
    wanted: Id = None,
    *,
    tail: Tail = None,
    follow: Follow = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the log of a run, or what a rollout wrote: its log records, standard output and standard error.

    \b
    For example:
      agl logs
      agl logs runs/NAME --follow
      agl logs ROLLOUT
      agl logs ROLLOUT --store-url http://127.0.0.1:4747 --json
    """
    from agl.cli import logs as command

    options = command.Options(tail=tail, follow=follow, store_url=store_url, run_dir=run_dir, as_json=as_json)
    command.main(wanted, options)
