"""agl export as the command line sees it: its options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agl.cli.arguments import AsJson, Cfg, ConfigDir, RunDir, StoreUrl
from agl.cli.interrupts import raised_interrupts

exporting = typer.Typer()

What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="what=KIND [KEY=VALUE]...",
        help="policy, prompts, rollouts, spans, samples or sft, and its settings; --cfg shows them.",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="The file or folder to write; default: named after what it is.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]


@exporting.command("export", rich_help_panel="Results")
def export(
    overrides: What = None,
    *,
    out: Out = None,
    run_dir: RunDir = None,
    store_url: StoreUrl = None,
    force: Force = False,
    as_json: AsJson = False,
    config_dir: ConfigDir = None,
    cfg: Cfg = False,
) -> None:
    """Take results out of a run: its policy, prompts, records, or chats to fine-tune a model on.

    \b
    For example:
      agl export what=policy --out my-model
      agl export what=policy lora=adapter --run-dir runs/NAME
      agl export what=prompts format=python --out my_prompts.py
      agl export what=spans --out spans.jsonl
      agl export what=rollouts format=parquet status=failed
      agl export what=sft min_reward=0.5 top_k=2 --store-url http://127.0.0.1:4747
      agl export what=samples --cfg
    """
    from agl.cli import export as command

    options = command.Options(
        out=out,
        run_dir=run_dir,
        store_url=store_url,
        force=force,
        as_json=as_json,
        config_dir=config_dir,
        cfg=cfg,
    )
    with raised_interrupts():
        command.main(overrides or [], options)
