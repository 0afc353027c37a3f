"""agl show as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, RunDir, StoreUrl
from agl.cli.completion import complete_runs

showing = typer.Typer()

Id = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="Of a rollout, an attempt, resources or a worker; or a run: its id, folder or name. Default: the newest"
        " run.",
        autocompletion=complete_runs,
    ),
]
WhichAttempt = Annotated[
    str | None,
    typer.Option(
        "--attempt", metavar="A", help="Of a rollout: the attempt's number or id. Default: the newest."
    ),
]
Metric = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Of a run: draw these numbers, not its rewards; may be repeated."),
]
Full = Annotated[
    bool, typer.Option("--full", help="Show long texts to their end, and all settings of a run.")
]


@showing.command("show", rich_help_panel="Look at records")
def show(
    wanted: Id = None,
    *,
    attempt: WhichAttempt = None,
    metric: Metric = None,
    full: Full = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a run with its curve, a rollout with its conversation and rewards, resources, or a worker.

    \b
    For example:
      agl show
      agl show runs/NAME --metric update/kl
      agl show ROLLOUT --full
      agl show RESOURCES --store-url http://127.0.0.1:4747
    """
    from agl.cli.show import record as command

    options = command.Options(
        attempt=attempt,
        metrics=metric or [],
        full=full,
        store_url=store_url,
        run_dir=run_dir,
        as_json=as_json,
    )
    command.main(wanted, options)
