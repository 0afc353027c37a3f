"""``agl diff --evaluate``: two versions of a prompt, measured as ``agl eval --against`` does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from model_talk import run_agl

from agl.store.sqlite import SqliteLightningStore
from agl.types import PromptTemplate

AGENT = """
async def agent(task, prompt):
    return float(task["n"] < len(prompt.template))
"""


def test_two_prompts_are_compared_as_text_and_by_what_they_earn(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENT)
    (tmp_path / "tasks.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(8)))
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "settings.yaml").write_text("name: light\n")

    async def add() -> None:
        async with SqliteLightningStore(str(run / "store.sqlite")) as store:
            await store.add_resources({"prompt": PromptTemplate(template="longer")}, resources_id="new")
            await store.add_resources({"prompt": PromptTemplate(template="ok")}, resources_id="old")

    asyncio.run(add())
    data = ["agent.target=mine.py:agent", "data=jsonl", "data.train=tasks.jsonl", "data.val=tasks.jsonl"]
    code, out, err = run_agl("diff", "new", "old", "--evaluate", "--json", *data, "name=light", cwd=tmp_path)
    assert code == 0, err
    found = json.loads(out)
    assert found["prompts"]["prompt"][-2:] == ["-longer", "+ok"]
    difference = found["comparison"]["difference"]
    assert (difference["mean"], difference["num_tasks"]) == (0.5, 8)  # 6 of 8 tasks against 2
    code, out, err = run_agl("diff", "new", "old", "--exit-code", cwd=tmp_path)
    assert code == 1, err
    assert f"Evaluated in {found['evaluations'][0]}; A minus B" in out
    assert "Difference  +0.500" in out
