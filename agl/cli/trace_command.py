"""agl trace as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, RunDir, StoreUrl

tracing = typer.Typer()

Rollout = Annotated[str, typer.Argument(metavar="ROLLOUT", help="The id of a rollout, or of an attempt.")]
WhichAttempt = Annotated[
    str | None, typer.Option("--attempt", metavar="A", help="Its number or id. Default: the newest attempt.")
]
Full = Annotated[bool, typer.Option("--full", help="Show all attributes and events of every span.")]


@tracing.command("trace", rich_help_panel="Look at records")
def trace(
    rollout: Rollout,
    *,
    attempt: WhichAttempt = None,
    full: Full = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the spans of a rollout as a tree: when each began, how long it took, what failed, and where time was lost.

    \b
    For example:
      agl trace ROLLOUT
      agl trace ROLLOUT --attempt 1 --full
      agl trace ROLLOUT --run-dir runs/NAME --json
    """
    from agl.cli import trace as command

    command.main(rollout, attempt=attempt, full=full, store_url=store_url, run_dir=run_dir, as_json=as_json)
