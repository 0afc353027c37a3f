"""The agent's side of the conversation: what it tells the model and how it reads the answers.

Kept apart from the agent so that the demonstrations of the starter policy are written in exactly the
agent's format.
"""

import re
from collections.abc import Sequence

ACCEPT = "OK"

# What a general model needs to be told; the starter policy was made for this conversation.
INSTRUCTIONS = (
    "You answer questions about an SQLite database. Reply with one SQL query and nothing else. You will be shown "
    "its error or its first rows; then reply OK if the query answers the question, or with a better query."
)

_FENCE = re.compile(r"```[ \t]*(?:sql|sqlite)?[ \t]*\n?(.*?)(?:```|\Z)", re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(
    r"\b(?:SELECT\b|WITH\s+(?:RECURSIVE\s+)?[\w\"`\[\]]+\s*(?:\([^)]*\)\s*)?AS\b).*",
    re.IGNORECASE | re.DOTALL,
)


def first_message(question: str, schema: str | None) -> str:
    """The task as the model sees it."""
    return f"{schema}\n{question}" if schema else question


def sql_from_answer(text: str) -> str | None:
    """The SQL in a model's answer, without fences, prose or final semicolon; None if there is none."""
    fenced = [block.strip() for block in _FENCE.findall(text)]
    for block in reversed([block for block in fenced if block]):
        return block.rstrip("; \n\t")
    found = _QUERY.search(text)
    if not found:
        return None
    query = found.group().split("\n\n")[0]
    semicolon = re.search(r";\s*(?:\n|$)", query)
    return (query[: semicolon.start()] if semicolon else query).strip("; \n\t`")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "NULL" if value is None else str(value)[:40]


def rows_message(rows: Sequence[Sequence[object]], preview_rows: int) -> str:
    """How many rows and the first of them: `7 rows: Ada, 31; Bob, 44; ...`."""
    shown = "; ".join(", ".join(_cell(cell) for cell in row) for row in rows[:preview_rows])
    more = "; ..." if len(rows) > preview_rows else ""
    return f"{len(rows)} rows: {shown}{more}" if rows else "0 rows"


def error_message(error: Exception) -> str:
    """What the model is told about a query that failed."""
    return f"error: {str(error)[:200]}"


def wrong_message(last_query: str, outcome: str, gold_sql: str) -> str:
    """What is noted behind a conversation that ended with a wrong answer."""
    return f"wrong. Last query: {last_query}\nIts outcome: {outcome}\nA right query: {gold_sql}"


NO_QUERY = "error: no query"
