"""Archive: every candidate with its scores, and the best prompts, as files of the run that a person can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.scoring import Scores
from agl.types.prompt import PromptTemplate, TemplateEngine

FOLDER = "prompts"
_SUFFIX: dict[TemplateEngine, str] = {"f-string": "txt", "jinja2": "jinja", "poml": "poml"}


class Archive:
    """The folder ``prompts`` of a run: ``candidates.jsonl``, ``best.json``, ``best/NAME.txt``.

    Args:
        run_dir: of the run.
    """

    def __init__(self, run_dir: Path) -> None:
        self.folder = run_dir / FOLDER
        self._rows: dict[str, dict[str, Any]] = {}

    def record(self, candidate: Candidate, scores: Scores) -> None:
        """Write a candidate down, or its scores on more tasks."""
        self._rows[candidate.candidate_id] = {
            "candidate_id": candidate.candidate_id,
            "parent": candidate.parent,
            "made_by": candidate.made_by,
            "mean_reward": scores.mean,
            "num_tasks": len(scores.rewards),
            "failed": dict(scores.failed),
            "rewards": {str(task): reward for task, reward in scores.rewards.items()},
            "prompts": {name: prompt.model_dump() for name, prompt in candidate.prompts.items()},
        }
        lines = (json.dumps(row, ensure_ascii=False) for row in self._rows.values())
        _write(self.folder / "candidates.jsonl", "\n".join(lines) + "\n")

    def save_best(self, candidate: Candidate, scores: Scores, resources_id: str) -> None:
        """Write the chosen prompts, each as text and all as JSON."""
        for name, prompt in candidate.prompts.items():
            _write(best_file(self.folder, name, prompt), prompt.template)
        best = {
            "candidate_id": candidate.candidate_id,
            "resources_id": resources_id,
            "mean_reward": scores.mean,
            "num_tasks": len(scores.rewards),
            "prompts": {name: prompt.model_dump() for name, prompt in candidate.prompts.items()},
        }
        _write(self.folder / "best.json", json.dumps(best, ensure_ascii=False, indent=2) + "\n")


def best_file(folder: Path, name: str, prompt: PromptTemplate) -> Path:
    """Return where the text of a chosen prompt is written in an archive's folder."""
    return folder / "best" / f"{quote(name, safe=' ')}.{_SUFFIX[prompt.engine]}"


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader, or a killed process, never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
