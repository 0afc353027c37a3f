import asyncio
import json
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, InternalServerError
from sql_recipe import agent
from sql_recipe.messages import INSTRUCTIONS, sql_from_answer

from agl.types.resource import LLM

TASK = {
    "question": "How many orders are there?",
    "schema": "orders(id,quantity)",
    "database": "generated:shop",
    "gold_sql": "SELECT COUNT(*) FROM orders",
    "ordered": False,
    "family": "count",
}
RIGHT, WRONG, BROKEN = (
    "SELECT COUNT(*) FROM orders",
    "SELECT MAX(id) FROM products",
    "SELECT nonsense FROM orders",
)
LLM_RESOURCE = LLM(
    base_url="http://model.test/v1", model="policy", sampling={"temperature": 0.5, "max_tokens": 64}
)

Answers = Callable[..., list[dict[str, Any]]]


@pytest.fixture
async def model() -> AsyncIterator[Answers]:
    """Gives the agent a client whose model says the given answers in turn; returns the requests it gets."""
    opened: list[httpx.AsyncClient] = []

    def answers(*texts: str | int) -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = []

        def handle(request: httpx.Request) -> httpx.Response:
            requests.append(json.loads(request.content))
            text = texts[len(requests) - 1]
            if isinstance(text, int):
                return httpx.Response(text, json={"error": {"message": "down"}})
            message = {"role": "assistant", "content": text}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            body = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "policy",
                "choices": choices,
            }
            return httpx.Response(200, json=body)

        http = httpx.AsyncClient(transport=httpx.MockTransport(handle))
        opened.append(http)
        client = AsyncOpenAI(base_url="http://model.test/v1", api_key="x", http_client=http, max_retries=0)
        agent.clients[asyncio.get_running_loop()] = cycle([client])
        return requests

    yield answers
    for http in opened:
        await http.aclose()


async def run(**settings: Any) -> float:
    return await agent.sql_agent(TASK, LLM_RESOURCE, **settings)


async def test_an_accepted_right_query_is_worth_one_and_the_model_saw_schema_and_rows(model: Answers) -> None:
    requests = model(RIGHT, "OK")
    assert await run() == 1.0
    assert [len(request["messages"]) for request in requests] == [1, 3]
    assert requests[1]["messages"] == [
        {"role": "user", "content": "orders(id,quantity)\nHow many orders are there?"},
        {"role": "assistant", "content": RIGHT},
        {"role": "user", "content": "1 rows: 160"},
    ]
    assert (requests[0]["model"], requests[0]["temperature"], requests[0]["max_tokens"]) == (
        "policy",
        0.5,
        64,
    )


@pytest.mark.parametrize(
    ("answers", "reward"),
    [
        ((WRONG, "OK"), 0.0),
        ((BROKEN, RIGHT, "OK"), 1.0),
        ((RIGHT, WRONG, "OK"), 0.0),
        ((WRONG, f"Sorry:\n```sql\n{RIGHT};\n```", "OK."), 1.0),
        ((RIGHT, BROKEN, "OK"), 0.0),
        ((RIGHT, "That looks right."), 1.0),
        (("OK", RIGHT, "OK"), 1.0),
        (("I do not know", "nor now"), 0.0),
        (("", ""), 0.0),
        (("SELECT quantity FROM orders", "OK"), 0.0),
    ],
)
async def test_the_last_query_that_was_run_counts(
    model: Answers, answers: tuple[str, ...], reward: float
) -> None:
    requests = model(*answers)
    assert await run() == reward
    assert len(requests) == len(answers)


async def test_the_model_is_told_what_went_wrong(model: Answers) -> None:
    requests = model(BROKEN, "OK")
    await run()
    assert requests[1]["messages"][-1] == {"role": "user", "content": "error: no such column: nonsense"}


async def test_no_call_is_made_whose_answer_could_not_matter(model: Answers) -> None:
    requests = model(WRONG, WRONG, RIGHT)
    assert await run(max_turns=3) == 1.0
    assert len(requests) == 3
    requests = model(RIGHT)
    assert await run(max_turns=1) == 1.0
    assert len(requests) == 1


async def test_settings_shape_the_conversation(model: Answers) -> None:
    requests = model("SELECT name FROM products ORDER BY name", "OK")
    await run(show_schema=False, system_prompt=INSTRUCTIONS, preview_rows=1)
    assert requests[0]["messages"] == [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "How many orders are there?"},
    ]
    assert requests[1]["messages"][-1]["content"] == "24 rows: Atlas; ..."


async def test_a_failing_model_is_an_error_not_a_wrong_answer(model: Answers) -> None:
    model(500)
    with pytest.raises(InternalServerError):
        await run()


async def test_a_broken_gold_query_is_an_error_not_a_wrong_answer(model: Answers) -> None:
    model(RIGHT, "OK")
    with pytest.raises(
        ValueError, match=r"the gold query of .* fails on generated:shop: no such table: nowhere"
    ):
        await agent.sql_agent({**TASK, "gold_sql": "SELECT 1 FROM nowhere"}, LLM_RESOURCE)


async def test_rollouts_of_one_loop_share_clients(model: Answers) -> None:
    model(*[RIGHT, "OK"] * 2)
    await run()
    shared = agent.clients[asyncio.get_running_loop()]
    await run()
    assert agent.clients[asyncio.get_running_loop()] is shared


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("SELECT a FROM t", "SELECT a FROM t"),
        ("select a from t;", "select a from t"),
        ("```sql\nSELECT a\nFROM t;\n```", "SELECT a\nFROM t"),
        ("```\nSELECT a FROM t\n```\nThis lists all a.", "SELECT a FROM t"),
        ("First\n```sql\nSELECT 1\n```\nbetter:\n```sql\nSELECT 2\n```", "SELECT 2"),
        ("```sql\nSELECT a FROM t", "SELECT a FROM t"),
        ("Sure! Here it is: SELECT a FROM t;\nIt lists a.", "SELECT a FROM t"),
        ("SELECT a FROM t\n\nThis lists a.", "SELECT a FROM t"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH x AS (SELECT 1) SELECT * FROM x"),
        (
            "WITH RECURSIVE x(n) AS (SELECT 1) SELECT * FROM x",
            "WITH RECURSIVE x(n) AS (SELECT 1) SELECT * FROM x",
        ),
        ("SELECT ';' FROM t", "SELECT ';' FROM t"),
        ("OK", None),
        ("I am happy with that.", None),
        ("", None),
    ],
)
def test_the_query_is_found_in_what_a_model_says(text: str, sql: str | None) -> None:
    assert sql_from_answer(text) == sql


async def test_a_prompt_template_asks_and_notes_say_what_was_wrong(
    model: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(agent.agl, "emit_message", noted.append)
    prompt = agent.agl.PromptTemplate(template="Tables:\n{schema}\nTask: {question}")
    requests = model(WRONG, "OK")
    assert await agent.sql_agent(TASK, LLM_RESOURCE, prompt) == 0.0
    assert requests[0]["messages"] == [
        {"role": "user", "content": "Tables:\norders(id,quantity)\nTask: How many orders are there?"}
    ]
    model(RIGHT, "OK")
    assert await agent.sql_agent(TASK, LLM_RESOURCE, prompt) == 1.0
    assert noted == [f"wrong. Last query: {WRONG}\nIts outcome: 1 rows: 24\nA right query: {RIGHT}", "right"]
