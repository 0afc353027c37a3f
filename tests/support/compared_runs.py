"""Folders of runs and evaluations, as ``agl diff`` reads them, in the working directory."""

from __future__ import annotations

import json
from pathlib import Path

from agl.types import PromptTemplate

SETTINGS = """
name: light
run_dir: runs/{name}
algorithm: {{beam_width: {width}}}
resources:
  prompt: {{_target_: agl.types.PromptTemplate, template: first}}
  size: 3
"""


def made_run(name: str, *, width: int = 1, best: str | None = None) -> Path:
    """A run with a prompt, a beam width and numbers of two steps; the third was cut off."""
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(SETTINGS.format(name=name, width=width))
    rows = [
        {"step": 0, "time": 1.0, "val/reward": 0.25},
        {"step": 1, "time": 2.0, "val/reward": 0.5, "x": None},
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"step": 2, "val/rew')
    if best is not None:
        (folder / "prompts").mkdir()
        prompts = {"prompt": PromptTemplate(template=best).model_dump()}
        (folder / "prompts" / "best.json").write_text(json.dumps({"prompts": prompts}))
    return folder


def evaluation(name: str, contestant: str, *task_ids: str, against: str | None = None) -> None:
    """An evaluation of those tasks, without a rollout."""
    folder = Path("runs") / name
    folder.mkdir(parents=True)

    def report(who: str) -> dict[str, object]:
        tasks = [{"task_id": task_id, "task": task_id, "runs": []} for task_id in task_ids]
        return {"contestant": who, "resources_id": f"{name}-rs", "threshold": 1.0, "tasks": tasks}

    found = {"evaluated": report(contestant), "against": None if against is None else report(against)}
    (folder / "evaluation.json").write_text(json.dumps(found))
    (folder / "settings.yaml").write_text("name: light\n")
