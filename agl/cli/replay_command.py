"""agl replay as the command line sees it: its options and help."""

from __future__ import annotations

from typing import Annotated

import typer

from agl.cli.arguments import AsJson, ConfigDir, RunDir, StoreUrl

replaying = typer.Typer()


@replaying.command("replay", rich_help_panel="Act on records")
def replay(
    rollout: Annotated[str, typer.Argument(metavar="ROLLOUT", help="The id of a rollout that has ended.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="OVERRIDES", help="Of the settings of its run: KEY=VALUE; or +recipe=NAME."),
    ] = None,
    *,
    from_call: Annotated[
        int | None,
        typer.Option(
            "--from-call",
            metavar="K",
            help="From the K-th call on the model answers anew; 1 is all calls. Default: the record answers all.",
        ),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(
            "--resources",
            metavar="WHO",
            help="What the agent gets instead: the id of resources, a run, latest or base, as in agl eval.",
        ),
    ] = None,
    fresh_on_difference: Annotated[
        bool,
        typer.Option(
            "--fresh-on-difference",
            help="A call that is not the recorded one goes to the model, and does not fail.",
        ),
    ] = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    config_dir: ConfigDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a rollout's task again with its model answers from the record, and compare what happens with it.

    \b
    For example:
      agl replay ro-4f1d7a90c2b35e68
      agl replay ro-4f1d7a90c2b35e68 agent.target=my_agent.py:fixed
      agl replay ro-4f1d7a90c2b35e68 --from-call 3
      agl replay ro-4f1d7a90c2b35e68 --from-call 1 --resources latest
    """
    from agl.cli import replay as command

    options = command.Options(
        rollout_id=rollout,
        overrides=overrides or [],
        from_call=from_call,
        resources=resources,
        fresh_on_difference=fresh_on_difference,
        store_url=store_url,
        run_dir=run_dir,
        config_dir=config_dir,
        as_json=as_json,
    )
    command.main(options)
