"""agl ls as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, RunDir, StoreUrl

listing = typer.Typer()

What = Annotated[
    str, typer.Argument(metavar="WHAT", help="runs, rollouts, workers or resources.", show_default=False)
]
OfRun = Annotated[str | None, typer.Option("--run", metavar="ID", help="Rollouts and resources of this run.")]
Status = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATUS",
        help="Rollouts in this status: pending, preparing, running, requeuing, succeeded, failed or cancelled; may be"
        " repeated.",
    ),
]
TaskMode = Annotated[str | None, typer.Option("--mode", help="Rollouts of train, val or test tasks.")]
OfWorker = Annotated[str | None, typer.Option("--worker", metavar="ID", help="Rollouts that it executed.")]
OfGroup = Annotated[str | None, typer.Option("--group", metavar="ID", help="Rollouts of one task's group.")]
OfResources = Annotated[
    str | None, typer.Option("--resources", metavar="ID", help="Rollouts that were given these resources.")
]
MinReward = Annotated[float | None, typer.Option(metavar="X", help="Rollouts with a reward of X or more.")]
MaxReward = Annotated[float | None, typer.Option(metavar="X", help="Rollouts with a reward of X or less.")]
Failed = Annotated[
    str | None,
    typer.Option(metavar="CAUSE", help="Rollouts that failed by this cause, such as TimeoutError."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="The most lines.")]
Order = Annotated[
    str, typer.Option(help="Of rollouts: newest, oldest, reward (highest first) or lowest (lowest first).")
]


@listing.command("ls", rich_help_panel="Look at records")
def ls(
    what: What = "runs",
    *,
    run: OfRun = None,
    status: Status = None,
    mode: TaskMode = None,
    worker: OfWorker = None,
    group: OfGroup = None,
    resources: OfResources = None,
    min_reward: MinReward = None,
    max_reward: MaxReward = None,
    failed: Failed = None,
    limit: Limit = 30,
    order: Order = "newest",
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    as_json: AsJson = False,
) -> None:
    """List runs, or the rollouts, workers and resources of a run.

    \b
    For example:
      agl ls
      agl ls rollouts --status failed --status cancelled
      agl ls rollouts --mode val --order lowest --limit 5
      agl ls rollouts --run-dir runs/NAME --failed TimeoutError
      agl ls workers --store-url http://127.0.0.1:4747
    """
    from agl.cli import ls as command

    wanted = command.Wanted(
        run_id=run,
        status=tuple(status or ()),
        mode=mode,
        worker_id=worker,
        group_id=group,
        resources_id=resources,
        min_reward=min_reward,
        max_reward=max_reward,
        cause=failed,
        limit=limit,
        order=order,
    )
    command.main(what, wanted, store_url=store_url, run_dir=run_dir, as_json=as_json)
