"""Every candidate and the best prompts lie in the run's folder, for a person to read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from agl.algorithms.prompts.archive import Archive, best_file
from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.scoring import Scores
from agl.types import PromptTemplate

START = Candidate(
    prompts={
        "a": PromptTemplate(template="Answer {task}"),
        "b": PromptTemplate(template="<p>x</p>", engine="poml"),
    }
)


def scores(*rewards: float | None) -> Scores:
    return Scores(rewards=dict(enumerate(rewards)), failed=Counter(x=sum(r is None for r in rewards)))


def test_candidates_are_rows_with_their_newest_scores(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    better = START.changed("a", "Solve {task}", made_by="critique")
    archive.record(START, scores(0.0))
    archive.record(better, scores(1.0, None))
    archive.record(START, scores(0.0, 1.0))
    rows = [json.loads(line) for line in (tmp_path / "prompts" / "candidates.jsonl").read_text().splitlines()]
    assert [(row["candidate_id"], row["parent"], row["made_by"]) for row in rows] == [
        (START.candidate_id, None, "start"),
        (better.candidate_id, START.candidate_id, "critique"),
    ]
    assert [(row["mean_reward"], row["num_tasks"]) for row in rows] == [(0.5, 2), (1.0, 2)]
    assert rows[1]["rewards"] == {"0": 1.0, "1": None}
    assert rows[1]["failed"] == {"x": 1}
    assert rows[1]["prompts"]["a"]["template"] == "Solve {task}"


def test_the_best_prompts_are_text_files_and_one_json(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.save_best(START, scores(1.0), "rs-1")
    folder = tmp_path / "prompts"
    assert (folder / "best" / "a.txt").read_text() == "Answer {task}"
    assert (folder / "best" / "b.poml").read_text() == "<p>x</p>"
    best = json.loads((folder / "best.json").read_text())
    assert (best["candidate_id"], best["resources_id"], best["mean_reward"]) == (
        START.candidate_id,
        "rs-1",
        1.0,
    )
    assert PromptTemplate(**best["prompts"]["a"]) == START.prompts["a"]
    assert not list(folder.glob("**/*.part"))


def test_a_name_of_a_resource_never_leaves_the_folder(tmp_path: Path) -> None:
    assert best_file(tmp_path, "../a b", START.prompts["a"]) == tmp_path / "best" / "..%2Fa b.txt"
