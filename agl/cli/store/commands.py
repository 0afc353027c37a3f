"""agl store as the command line sees it: serving is what it does unless another command of its own is named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agl.cli.interrupts import raised_interrupts

SERVE = "serve"


class ServedByDefault(TyperGroup):
    """A group of commands that serves where none is named: ``agl store port=80`` is ``agl store serve port=80``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the serving command before arguments that are its own: options, overrides, or none at all."""
        asks_for_help = args[:1] in (["--help"], ["-h"])
        names_a_command = bool(args) and not args[0].startswith(("-", "+", "~")) and "=" not in args[0]
        return super().parse_args(ctx, args if asks_for_help or names_a_command else [SERVE, *args])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the serving command's own help, and the other commands below it."""
        serve = self.commands[SERVE]
        shown = TyperGroup(
            name=self.name,
            commands={name: command for name, command in self.commands.items() if name != SERVE},
            params=serve.params,
            help=serve.help,
            rich_markup_mode=self.rich_markup_mode,
            subcommand_metavar="| COMMAND [ARGS]...",
        )
        shown.format_help(ctx, formatter)


store = typer.Typer(cls=ServedByDefault, help="Serve the store over HTTP; copy it, or forget old records.")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="OVERRIDES", help="store=sqlite|memory|mongo, store.path=FILE, KEY=VALUE."),
]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        help="What callers must send. Other users of this machine can read it here: prefer AGL_STORE_TOKEN in the"
        " environment.",
    ),
]
ConfigDir = Annotated[Path | None, typer.Option(help="A further folder of config groups.")]
StoreUrl = Annotated[
    str | None, typer.Option("--store-url", metavar="URL", help="A store that is being served.")
]


@store.command(SERVE)
def serve(
    overrides: Overrides = None,
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default 127.0.0.1. Others need a token.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Default 4747; 0 takes a free one.")] = None,
    token: Token = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse whatever would change it.")] = False,
    config_dir: ConfigDir = None,
    cfg: Annotated[bool, typer.Option("--cfg", help="Print the composed settings and exit.")] = False,
) -> None:
    """Serve the store over HTTP: by default the file store.sqlite of this folder.

    \b
    For example:
      agl store
      agl store store.path=runs/mine/store.sqlite --read-only
      agl store store=memory --port 0
      agl store store=mongo store.url=mongodb://localhost:27017
    """
    from agl.cli.store import serve as command

    command.main(
        overrides or [],
        host=host,
        port=port,
        token=token,
        read_only=read_only,
        config_dir=config_dir,
        cfg=cfg,
    )


@store.command()
def gc(
    overrides: Overrides = None,
    *,
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Delete this run, or with --older-than its old spans."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Delete the spans of rollouts that finished longer ago: 30d, 12h."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    store_url: StoreUrl = None,
    token: Token = None,
    config_dir: ConfigDir = None,
) -> None:
    """Forget runs, or the spans of rollouts that finished long ago. Never of a run that is still running.

    \b
    For example:
      agl store gc --older-than 30d --store-url http://127.0.0.1:4747
      agl store gc --run 2026-01-31_first store.path=store.sqlite --dry-run
    """
    from agl.cli.store import gc as command

    with raised_interrupts():
        command.main(
            overrides or [],
            runs=run or [],
            older_than=older_than,
            dry_run=dry_run,
            store_url=store_url,
            token=token,
            config_dir=config_dir,
        )


@store.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; never overwritten.")],
    overrides: Overrides = None,
    *,
    store_url: StoreUrl = None,
    token: Token = None,
    config_dir: ConfigDir = None,
) -> None:
    """Copy the store into a file while it goes on: a store as of one moment, which can be opened and served.

    \b
    For example:
      agl store backup copy.sqlite --store-url http://127.0.0.1:4747
      agl store backup copy.sqlite store.path=runs/mine/store.sqlite
    """
    from agl.cli.store import backup as command

    with raised_interrupts():
        command.main(file, overrides or [], store_url=store_url, token=token, config_dir=config_dir)
