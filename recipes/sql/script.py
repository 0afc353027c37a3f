"""A scripted model in place of a language model: it knows SQL well, and does what its prompt says and little else.

As the agent's model it takes the right query and spoils it, unless it keeps the habit that prevents it; each habit is
kept on some questions, and on nearly all once the prompt asks for it. The table of habits is below and in the README.
As the optimizer it is `recipes/scripted/optimizer.py`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from agl.agents.load import load_object

from .data import known_questions
from .messages import ACCEPT
from .schemas import HELD_OUT_SCHEMA, TRAINING_SCHEMAS, Schema

_OPTIMIZER = Path(__file__).parents[1] / "scripted" / "optimizer.py"
Habit: Any = load_object(f"{_OPTIMIZER}:Habit")
Optimizer: Any = load_object(f"{_OPTIMIZER}:Optimizer")

SCHEMAS = (*TRAINING_SCHEMAS, HELD_OUT_SCHEMA)
EXPLANATION = "\nThis query answers the question."

HABITS = {
    "format": Habit(
        r"nothing else|only the (sql|query)|no explanation|without (an )?explanation",
        0.55,
        "It explains its query behind it, which is then no SQL any more.",
        "Reply with the query and nothing else.",
    ),
    "repair": Habit(
        r"\berror",
        0.35,
        "It repeats a query that was answered with an error.",
        "If you are shown an error, find its cause and correct the query.",
    ),
    "columns": Habit(
        r"(only|exactly|just) the columns?",
        0.5,
        "It selects columns that nobody asked for.",
        "Select exactly the columns that are asked for, in their order.",
    ),
    "text": Habit(
        r"spell|letter case|as (it is |they are )?written",
        0.5,
        "It changes the spelling of values.",
        "Spell values as they are written in the question.",
    ),
    "join": Habit(
        r"\bjoin",
        0.4,
        "It uses columns of a table that its query does not have.",
        "Join the tables whose columns you use.",
    ),
    "order": Habit(
        r"order by|\bsort",
        0.4,
        "It leaves out the order.",
        "Sort with ORDER BY where an order, the highest or the lowest is asked for.",
    ),
    "group": Habit(
        r"group by|for each|per group",
        0.4,
        "It does not show or count the groups.",
        "For questions about groups use GROUP BY, select the group first, and put conditions on it in HAVING.",
    ),
    "subquery": Habit(
        r"sub-?quer|nested",
        0.35,
        "It compares with something that needs a query of its own.",
        "Compute averages and exclusions in a subquery.",
    ),
    "distinct": Habit(
        r"distinct|duplicat",
        0.3,
        "It counts or lists the same value twice.",
        "Use DISTINCT where different values are asked for.",
    ),
}
GUESSES = r"from memory|do not look at the (tables|schema)"
"""An instruction like this makes it write column names as it remembers them: wrong on this part of the questions:"""
GUESSING = 0.4
RAMBLES = r"step by step|explain your|in detail"
"""One like this makes it explain on this part of the questions, whatever else it is told:"""
RAMBLING = 0.3
BLAND = (
    "Be precise.",
    "Read the question carefully.",
    "Double-check your work.",
    "You are an expert in databases.",
    "Write clean SQL.",
    "Keep your query short.",
    "Think about what the user needs.",
    "Avoid mistakes.",
    "Be consistent.",
    "Use upper case for keywords.",
    "Your work is important.",
    "Prefer simple queries.",
)
HARM = (
    "Answer from memory where you can: it is faster.",
    "Explain your query step by step in detail.",
)


def _with_id(gold: str) -> str:
    """The query with a column in front that nobody asked for."""
    found = re.match(r"SELECT (DISTINCT )?(?:(\w+)\.)?\w+(, \w+)? FROM (\w+)", gold)
    if found is None:
        return gold
    column = f"{found.group(2)}.id" if found.group(2) else "id"
    return gold.replace("SELECT ", f"SELECT {column}, ", 1).replace(
        f"{column}, DISTINCT", f"DISTINCT {column},"
    )


def _without_group(gold: str) -> str:
    if " HAVING " in gold:
        return gold[: gold.index(" HAVING ")]
    return re.sub(r"^SELECT [\w.]+, (?=\w+\()", "SELECT ", gold) if " GROUP BY " in gold else gold


SPOILS: Mapping[str, Callable[[str], str]] = {
    "columns": _with_id,
    "group": _without_group,
    "order": lambda gold: re.sub(r" ORDER BY .*?(?= LIMIT|\)|$)", "", gold),
    "distinct": lambda gold: gold.replace("DISTINCT ", ""),
    "subquery": lambda gold: re.sub(r"\(SELECT (AVG\(\w+\)) FROM \w+\)", r"\1", gold).replace(
        " NOT IN ", " IN "
    ),
    "text": lambda gold: re.sub(r"'[^']*'", lambda found: found.group().lower(), gold),
    "join": lambda gold: re.sub(r" JOIN \w+ ON [\w.]+ = [\w.]+", "", gold),
    "format": lambda gold: gold + EXPLANATION,
}
"""What becomes of a right query where a habit is not kept; the same query where it does not matter."""
MARKS: Mapping[str, Callable[[str, str], bool]] = {
    "format": lambda query, _: EXPLANATION.strip() in query,
    "columns": lambda query, gold: (
        bool(re.match(r"SELECT (DISTINCT )?(\w+\.)?id,", query)) and " id," not in gold
    ),
    "join": lambda query, gold: " JOIN " in gold and " JOIN " not in query,
    "order": lambda query, gold: " ORDER BY " in gold and " ORDER BY " not in query,
    "group": lambda query, gold: _without_group(gold) != gold and _head(gold) not in query,
    "subquery": lambda query, gold: (
        gold.count("(SELECT") > query.count("(SELECT") or (" NOT IN " in gold and " NOT IN " not in query)
    ),
    "distinct": lambda query, gold: "DISTINCT" in gold and "DISTINCT" not in query,
    "text": lambda query, gold: any(
        value not in query and value.lower() in query for value in re.findall(r"'[^']*'", gold)
    ),
}
"""How a query, beside the right one, shows that a habit was not kept."""


def _head(gold: str) -> str:
    """What is missing from a grouping query that was spoilt."""
    return gold[gold.index(" HAVING ") :] if " HAVING " in gold else gold[: gold.index(" FROM ")]


def answer(request: Mapping[str, Any], seed: str) -> dict[str, Any]:
    """Return the scripted model's message: the agent's in its conversation, else the optimizer's."""
    texts = [_text(message) for message in request["messages"]]
    text = "\n".join(texts)
    if "# Your " in text or "```" in texts[0]:
        return {"content": OPTIMIZER.answer(text, Random(f"{seed}/{text}"))}
    return {"content": _query(request["messages"], seed)}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


# --- The agent's model ------------------------------------------------------------------------------------------------


def _query(messages: list[Mapping[str, Any]], seed: str) -> str:
    told = "\n".join(_text(one) for one in messages if one["role"] == "system")
    asked = [_text(one) for one in messages if one["role"] == "user"]
    found = find_question(asked[0])
    if found is None:
        return "Which question do you mean?"
    prompt, question, gold = found
    prompt = f"{told}\n{prompt}"
    kept = {name for name, habit in HABITS.items() if habit.is_kept(prompt, _chance(name, question, seed))}
    if re.search(RAMBLES, prompt, re.IGNORECASE) and _chance("rambles", question, seed) < RAMBLING:
        kept.discard("format")
    if len(asked) > 1:
        if not asked[-1].startswith("error"):
            return ACCEPT
        if "repair" in kept:
            kept |= {"format", "join"}
    spoilt = gold
    for name, spoil in SPOILS.items():
        if name not in kept:
            spoilt = spoil(spoilt)
    if re.search(GUESSES, prompt, re.IGNORECASE) and _chance("guesses", question, seed) < GUESSING:
        spoilt = re.sub(r"(?<=SELECT )(\w+)", r"\1_name", spoilt)
    return spoilt


def _chance(name: str, question: str, seed: str) -> float:
    """The same for a question under every prompt: better prompts are better on the same questions."""
    return Random(f"{seed}/{name}/{question}").random()


def find_question(text: str) -> tuple[str, str, str] | None:
    """Return the prompt around it, the question and the right query, for the last question in a text."""
    asked = [schema for schema in SCHEMAS if schema.text() in text]
    places = [
        (text.rfind(question), len(question), question, schema)
        for schema in asked
        for question in _right_queries(schema)
        if question in text
    ]
    if not places:
        return None
    *_, question, schema = max(places, key=lambda place: place[:2])
    prompt = text.replace(schema.text(), "").replace(question, "")
    return prompt, question, _right_queries(schema)[question]


@cache
def _right_queries(schema: Schema) -> dict[str, str]:
    """Right queries by the text of the question."""
    return {question.text: question.sql for question in known_questions(schema)}


# --- The optimizer ----------------------------------------------------------------------------------------------------

_NOTE = re.compile(
    r"^note: wrong\. Last query: (.*?)\nIts outcome: ([^\n]*)\nA right query: ([^\n]*)",
    re.DOTALL | re.MULTILINE,
)


def not_kept(text: str) -> Counter[str]:
    """Return which habits were not kept in the transcripts in a text, by the notes at their ends."""
    found: Counter[str] = Counter()
    for query, outcome, gold in _NOTE.findall(text):
        found.update(name for name, shows in MARKS.items() if shows(query, gold))
        found.update(["repair"] * outcome.startswith("error"))
    return found


OPTIMIZER = Optimizer(
    habits=HABITS, not_kept=not_kept, bland=BLAND, harm=HARM, placeholder=("{question}", "the question")
)
