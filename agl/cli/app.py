"""The command line: one file a command, one error boundary, nothing heavy imported before a command runs."""

from __future__ import annotations

import atexit
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from agl import __version__
from agl.cli.arguments import Cfg, ConfigDir, OptionalResume, Overrides
from agl.cli.boundary import Boundary
from agl.cli.cancel_command import cancelling
from agl.cli.completion import answering_bash, complete_runs
from agl.cli.diff_command import comparing
from agl.cli.doctor_command import doctor
from agl.cli.eval_command import evaluation
from agl.cli.export_command import exporting
from agl.cli.import_command import importing
from agl.cli.init_command import init
from agl.cli.logs_command import reading
from agl.cli.ls_command import listing
from agl.cli.regrade_command import regrading
from agl.cli.replay_command import replaying
from agl.cli.retry_command import retrying
from agl.cli.show_command import showing
from agl.cli.store.commands import store
from agl.cli.trace_command import tracing

app = typer.Typer(
    cls=Boundary,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"agl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Train and improve AI agents that already exist.

    \b
    For example:
      agl train +recipe=ppo_sql    a small policy learns to write SQL, on a CPU
      agl init --help              a recipe of your own, which trains at once
      agl doctor --help            is everything there?
      agl show --help              the last run: its curve, its rollouts
    """


@app.command(cls=OptionalResume, rich_help_panel="Roles of the pipeline")
def train(
    overrides: Overrides = None,
    *,
    cfg: Cfg = False,
    config_dir: ConfigDir = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="Folder of this run; default runs/TIME-NAME.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Go on with a run: its folder or name, or the newest.",
            autocompletion=complete_runs,
        ),
    ] = None,
    store_url: Annotated[
        str | None,
        typer.Option(
            "--store-url",
            metavar="URL",
            help="Keep the run's records in the store that `agl store` serves there; its token is AGL_STORE_TOKEN.",
        ),
    ] = None,
) -> None:
    """Train an agent on tasks, as a recipe says.

    \b
    For example:
      agl train +recipe=ppo_sql
      agl train +recipe=ppo_sql --cfg
      agl train +recipe=ppo_sql algorithm=grpo algorithm.iterations=20 seed=1
      agl train +recipe=ppo_sql policy=lora policy.path=Qwen/Qwen2.5-0.5B-Instruct
      agl train +recipe=ppo_sql runner=processes runner.processes=2
      agl train +recipe=ppo_sql runner=remote --store-url http://127.0.0.1:4747
      agl train --resume
    """
    from agl.cli import train as command

    command.main(
        overrides or [],
        cfg=cfg,
        config_dir=config_dir,
        run_dir=run_dir,
        resume=resume,
        store_url=store_url,
    )


@app.command(rich_help_panel="Roles of the pipeline")
@app.command("runner", hidden=True)
def run(
    overrides: Overrides = None,
    *,
    store_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Join the store that is served there, until stopped.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="The store's. Other users of this machine can read it here: prefer AGL_STORE_TOKEN.",
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run", "--run-id", metavar="ID", help="Only rollouts of this run of the store."),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(help="Child processes that run agents; default 1 with --store-url, else none."),
    ] = None,
    max_concurrency: Annotated[
        int | None, typer.Option(help="The most attempts at once in each process.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(help="Which tasks: val (train where there are none), train or test.")
    ] = None,
    limit: Annotated[int, typer.Option(help="The most tasks; 0 takes all.")] = 10,
    task: Annotated[
        list[str] | None, typer.Option(metavar="JSON", help="Run this task, not the data's; may be repeated.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="The longest time of one attempt, in seconds.")] = 300.0,
    config_dir: ConfigDir = None,
    cfg: Cfg = False,
) -> None:
    """Run an agent: on some tasks here, to see what it does, or with --store-url as a runner that joins a store.

    \b
    For example:
      agl run agent.target=my_agent.py:agent --task '{"question": "2+2?"}'
      agl run +recipe=ppo_sql --limit 20
      agl runner +recipe=ppo_sql --store-url http://127.0.0.1:4747 --processes 4
    """
    from agl.cli import run as command

    options = command.Options(
        store_url=store_url,
        token=token,
        run_id=run_id,
        processes=processes,
        max_concurrency=max_concurrency,
        mode=mode,
        limit=limit,
        tasks=task or [],
        timeout_seconds=timeout,
        config_dir=config_dir,
        cfg=cfg,
    )
    command.main(overrides or [], options)


@app.command(rich_help_panel="Roles of the pipeline")
def proxy(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OVERRIDES", help="proxy.endpoints=..., proxy.KEY=VALUE; --cfg shows the keys."
        ),
    ] = None,
    *,
    store_url: Annotated[
        str | None, typer.Option("--store-url", metavar="URL", help="The store that is being served.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default 127.0.0.1. Others need a token.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Default 4748; 0 takes a free one.")] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="The proxy's own secret. Other users of this machine can read it here: prefer AGL_PROXY_TOKEN in the"
            " environment. The store's is AGL_STORE_TOKEN.",
        ),
    ] = None,
    config_dir: Annotated[Path | None, typer.Option(help="A further folder of config groups.")] = None,
    cfg: Annotated[bool, typer.Option("--cfg", help="Print the composed settings and exit.")] = False,
) -> None:
    """Serve the door to the models by itself; calls are recorded in a store that is served elsewhere.

    \b
    For example:
      agl proxy --store-url http://127.0.0.1:4747
      agl proxy --store-url URL "proxy.endpoints={gpu: {model: m, urls: ['http://gpu1:8000/v1']}}"
    """
    from agl.cli import proxy as command

    command.main(
        overrides or [],
        store_url=store_url,
        host=host,
        port=port,
        token=token,
        config_dir=config_dir,
        cfg=cfg,
    )


app.add_typer(store, name="store", rich_help_panel="Roles of the pipeline")
app.add_typer(init)
app.add_typer(doctor)
app.add_typer(evaluation)
app.add_typer(exporting)
app.add_typer(importing)
app.add_typer(listing)
app.add_typer(showing)
app.add_typer(tracing)
app.add_typer(reading)
app.add_typer(comparing)
app.add_typer(cancelling)
app.add_typer(retrying)
app.add_typer(replaying)
app.add_typer(regrading)


def main() -> None:
    """Run the app with the process's arguments; this ends the process."""
    print_anything()
    try:
        answering_bash(app)
    except SystemExit as ended:
        leave(ended.code)


def print_anything(streams: Sequence[object] = ()) -> None:
    """Let what the encoding of standard output and error lacks be printed as ``\\xe9`` instead of raising an error."""
    for stream in streams or (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave(code: object, *, end: Callable[[int], object] = os._exit) -> None:
    """End the process with what ``sys.exit`` was given, without taking the interpreter apart.

    That takes 0.6 s of CPU where torch and transformers are loaded, which on a busy machine is most of the time that
    Ctrl-C has, and waits for threads that do not end. Exit handlers run as always.
    """
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - it has no public name
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has gone
            stream.flush()
    end(code if isinstance(code, int) else int(code is not None))
