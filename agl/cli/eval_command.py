"""agl eval as the command line sees it: its options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agl.cli.arguments import Cfg, ConfigDir, OptionalResume, Overrides
from agl.cli.completion import complete_runs

evaluation = typer.Typer()

Resources = Annotated[
    str | None,
    typer.Option(
        metavar="WHO",
        autocompletion=complete_runs,
        help="Who is evaluated: a run (folder or name), the id of resources, latest (the newest run of the recipe) or"
        " base (what the settings begin with). Default: latest; base where there is none or an override names a model.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="WHO",
        autocompletion=complete_runs,
        help="Whom it is compared with: the same, or the folder of an earlier evaluation.",
    ),
]
Repeats = Annotated[int | None, typer.Option("--repeats", "-k", help="Rollouts of each task.")]
TaskMode = Annotated[
    str | None, typer.Option(help="Which tasks: test (val where there are none), val or train.")
]
Limit = Annotated[int | None, typer.Option(help="The first so many tasks.")]
FailUnder = Annotated[
    float | None, typer.Option(metavar="X", help="Exit with 1 where the mean reward is below X.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Keep the records in the store that `agl store` serves there; its token is AGL_STORE_TOKEN.",
    ),
]
RunDir = Annotated[
    Path | None, typer.Option("--run-dir", help="Folder of this run; default runs/TIME-NAME-eval.")
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="[RUN]",
        autocompletion=complete_runs,
        help="Go on with an evaluation: its folder or name, or the newest that has not ended.",
    ),
]


@evaluation.command("eval", cls=OptionalResume, rich_help_panel="Results")
def evaluate(
    overrides: Overrides = None,
    *,
    resources: Resources = None,
    against: Against = None,
    repeats: Repeats = None,
    mode: TaskMode = None,
    limit: Limit = None,
    fail_under: FailUnder = None,
    as_json: AsJson = False,
    store_url: StoreUrl = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    config_dir: ConfigDir = None,
    cfg: Cfg = False,
) -> None:
    """Measure a policy or prompts on held-out tasks, and compare them with others.

    \b
    For example:
      agl eval +recipe=ppo_sql --against base
      agl eval +recipe=ppo_sql --resources runs/NAME -k 4 evaluation.threshold=0.5
      agl eval +recipe=ppo_sql inference=openai --run-dir runs/large
      agl eval +recipe=ppo_sql --against runs/large --fail-under 0.7 --json
    """
    from agl.cli import eval as command
    from agl.cli.eval_settings import Options

    options = Options(
        resources=resources,
        against=against,
        mode=mode,
        limit=limit,
        repeats=repeats,
        as_json=as_json,
        fail_under=fail_under,
        store_url=store_url,
        run_dir=run_dir,
        resume=resume,
        config_dir=config_dir,
        cfg=cfg,
    )
    command.main(overrides or [], options)
