"""The agent: asks a model for SQL, runs it, shows it the outcome and lets it rewrite.

Plain `openai`, any model. Nothing here knows about training; the decorator only says that `agl` may run the
function.
"""

import asyncio
import ssl
from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle
from typing import Any
from weakref import WeakKeyDictionary

import httpx
from openai import AsyncOpenAI

import agl

from .execution import Limits, QueryError, execute, same_answer
from .messages import NO_QUERY, error_message, first_message, rows_message, sql_from_answer, wrong_message

Rows = list[tuple[object, ...]]

# Building a client loads the TLS certificates, which costs more than a whole rollout, so the rollouts of an event loop
# share some. Several, because at each request a client's pool looks at each of its idle connections.
NUM_CLIENTS = 8
clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Iterator[AsyncOpenAI]] = WeakKeyDictionary()


def _client(base_url: str, api_key: str | None) -> AsyncOpenAI:
    loop = asyncio.get_running_loop()
    if loop not in clients:
        certificates = httpx.create_ssl_context()
        clients[loop] = cycle([_new_client(certificates) for _ in range(NUM_CLIENTS)])
    return next(clients[loop]).with_options(base_url=base_url, api_key=api_key or "none")


def _new_client(certificates: ssl.SSLContext) -> AsyncOpenAI:
    limits = httpx.Limits(max_connections=1024, max_keepalive_connections=64)
    http = httpx.AsyncClient(verify=certificates, limits=limits, timeout=httpx.Timeout(120, connect=10))
    return AsyncOpenAI(base_url="http://unset", api_key="none", http_client=http, max_retries=1)


@agl.rollout
async def sql_agent(
    task: dict[str, Any],
    llm: Any,
    prompt_template: agl.PromptTemplate | None = None,
    *,
    show_schema: bool = True,
    system_prompt: str | None = None,
    max_turns: int = 3,
    preview_rows: int = 3,
    seconds_per_query: float = 2.0,
) -> float:
    """1.0 when the last query run answers like the gold query, else 0.0. A failing model call raises.

    With a prompt template, `{schema}` and `{question}` in it, that is what the model is asked, and a note behind the
    conversation says what was wrong: for who improves the prompt.
    """
    client, limits = _client(llm.base_url, llm.api_key), Limits(seconds=seconds_per_query)
    messages = [{"role": "system", "content": system_prompt}] if system_prompt else []
    schema = task["schema"] if show_schema else None
    asked = (
        prompt_template.format(question=task["question"], schema=schema or "")
        if prompt_template
        else first_message(task["question"], schema)
    )
    messages.append({"role": "user", "content": asked})
    rows: Rows | None = None
    last_query, outcome = "", NO_QUERY
    for turn in range(1, max_turns + 1):
        answer = await client.chat.completions.create(
            model=llm.model, messages=messages, **(llm.sampling or {})
        )
        text = answer.choices[0].message.content or ""
        sql = sql_from_answer(text)
        if sql is None and turn > 1:
            break  # it accepts what it has
        last_query = sql or ""
        outcome, rows = await _run(task["database"], sql, limits, preview_rows)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": outcome}]
    right = rows is not None and same_answer(rows, await _gold_rows(task), ordered=task["ordered"])
    if prompt_template:
        agl.emit_message("right" if right else wrong_message(last_query, outcome, task["gold_sql"]))
    return float(right)


async def _run(database: str, sql: str | None, limits: Limits, preview_rows: int) -> tuple[str, Rows | None]:
    """What the model is told about its query, and the rows if there are any."""
    if sql is None:
        return NO_QUERY, None
    try:
        rows = await asyncio.to_thread(execute, database, sql, limits)
    except QueryError as error:
        return error_message(error), None
    return rows_message(rows, preview_rows), rows


async def _gold_rows(task: dict[str, Any]) -> Rows:
    """The right answer. Raises ValueError when the task is broken: that must not look like a wrong answer."""
    try:
        return await asyncio.to_thread(_answer_of, task["database"], task["gold_sql"])
    except QueryError as error:
        raise ValueError(
            f"the gold query of {task['question']!r} fails on {task['database']}: {error}"
        ) from error


@lru_cache(maxsize=1024)
def _answer_of(database: str, gold_sql: str) -> Rows:
    """A gold query's rows; every rollout of a group asks for the same."""
    return execute(database, gold_sql, Limits(seconds=30.0, instructions=10**9))
