"""Resources as a list."""

from __future__ import annotations

import pytest
from listed_records import NOON, listed_store
from snapshots import WIDTHS, require_snapshot

from agl.cli.lists.resources import in_brief, version_lines, versions_of_store
from agl.types import LLM, ModelEndpoint, PromptTemplate, ProxyLLM, Weights


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_table_of_resources_marks_the_latest(width: int) -> None:
    store, clock = listed_store()
    async with store:
        assert version_lines([], place="memory", now=NOON, width=80) == ["No resources in memory"]
        for number, run_id in enumerate(("one", "one", "two")):
            clock.now = NOON + 60 * number
            await store.add_resources(
                {
                    "llm": ProxyLLM(base_url="http://x", model="policy", policy_version=number),
                    "prompt": PromptTemplate(template="Answer {question}"),
                },
                run_id=run_id,
                resources_id=f"{run_id}-train-v{number}-7e73bd06",
            )
        versions = await versions_of_store(store, 10)
        of_one = await versions_of_store(store, 10, run_id="one")
    assert [version.latest for version in versions] == ["store", "run", None]
    assert [version.resources.version for version in of_one] == [2, 1]
    lines = version_lines(versions, place="memory", now=NOON + 200, width=width)
    lines += ["", *version_lines(of_one, place="memory", now=NOON + 200, width=width)]
    assert max(map(len, lines)) <= width
    require_snapshot(f"ls_resources_{width}", lines)


def test_what_a_resource_is_in_brief_has_no_secret_in_it() -> None:
    prompt = PromptTemplate(template="x")
    kinds = [
        LLM(base_url="http://u:secret@x", model="m", api_key="secret"),
        ProxyLLM(base_url="http://x", model="p", api_key="secret", policy_version=2),
        ModelEndpoint(model="e", urls=("http://secret",)),
        prompt,
        Weights(path="/x", policy_version=3),
        {"secret": 1},
    ]
    assert [in_brief(kind) for kind in kinds] == [
        "model m",
        "model p v2",
        "endpoint of e",
        f"prompt {prompt.template_id} v1",
        "weights v3",
        "JSON",
    ]
