"""A model's answer -> the new text of a prompt: only what can be used is taken, and what was mended is told."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agl.errors import InvalidRequestError
from agl.types import PromptTemplate

MAX_GROWTH = 8
"""A rewrite longer than this many times its prompt, and than 8,000 characters, is no prompt but a lecture."""
MIN_LIMIT_CHARACTERS = 8_000

_TAGGED = re.compile(r"<prompt>(.*?)</prompt>", re.DOTALL | re.IGNORECASE)
_OPENED = re.compile(r"<prompt>", re.IGNORECASE)
_FENCED = re.compile(r"^```[\w-]*\n(.*?)\n?```$", re.DOTALL)


class RefusedRewriteError(Exception):
    """The answer cannot become a prompt.

    Args:
        cause: a short, countable name: ``empty``, ``unchanged``, ``unfinished``, ``too_long``, ``unknown_placeholder``,
            ``lost_placeholder``, ``not_a_template``.
    """

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A usable new text.

    Args:
        text: of the prompt, in the language of its engine.
        repairs: what had to be mended, as countable names: ``braces`` (those that are no placeholders were escaped),
            ``placeholder`` (a lost one was put at the end).
    """

    text: str
    repairs: tuple[str, ...] = ()


def rewrite_from_answer(answer: str, prompt: PromptTemplate, *, repair: bool = True) -> Rewrite:
    """Return the new text of a prompt out of a model's answer.

    The text stands between ``<prompt>`` and ``</prompt>``; without these marks the whole answer is taken, without a
    code fence around it. It must need the very placeholders that the prompt needs.

    Args:
        answer: the model's.
        prompt: what was to be rewritten.
        repair: mend braces and lost placeholders; else such a rewrite is refused.

    Raises:
        RefusedRewriteError: the answer cannot be used; the cause says why.
    """
    text = _text_in(answer)
    if not text:
        raise RefusedRewriteError("empty", "the rewrite is empty")
    if len(text) > max(MIN_LIMIT_CHARACTERS, MAX_GROWTH * len(prompt.template)):
        raise RefusedRewriteError("too_long", f"the rewrite has {len(text)} characters")
    wanted, repairs = prompt.placeholders, list[str]()
    if prompt.engine == "f-string" and repair and not _fits(text, prompt, wanted):
        text = _escaped(text, wanted)
        repairs.append("braces")
    found = _placeholders(text, prompt)
    if found - wanted:
        names = ", ".join(sorted(found - wanted))
        raise RefusedRewriteError(
            "unknown_placeholder", f"the rewrite needs {names}, which the prompt does not have"
        )
    lost = sorted(wanted - found)
    if lost and not repair:
        raise RefusedRewriteError("lost_placeholder", f"the rewrite has lost {', '.join(lost)}")
    if lost:
        text = "\n\n".join([text, *(_PLACED[prompt.engine] % name for name in lost)])
        repairs.append("placeholder")
    if text == prompt.template.strip():
        raise RefusedRewriteError("unchanged", "the rewrite is the prompt itself")
    return Rewrite(text=text, repairs=tuple(repairs))


_PLACED = {"f-string": "{%s}", "jinja2": "{{ %s }}", "poml": "<p>{{ %s }}</p>"}
"""How a placeholder is written."""


def _text_in(answer: str) -> str:
    tagged = _TAGGED.findall(answer)
    if tagged:
        return tagged[-1].strip()
    if _OPENED.search(answer):
        raise RefusedRewriteError("unfinished", "the rewrite breaks off before </prompt>")
    fenced = _FENCED.match(answer.strip())
    return (fenced.group(1) if fenced else answer).strip()


def _placeholders(text: str, prompt: PromptTemplate) -> frozenset[str]:
    try:
        return prompt.changed_to(text).placeholders
    except InvalidRequestError as error:
        raise RefusedRewriteError("not_a_template", str(error)) from error


def _fits(text: str, prompt: PromptTemplate, wanted: frozenset[str]) -> bool:
    try:
        return prompt.changed_to(text).placeholders <= wanted
    except InvalidRequestError:
        return False


def _escaped(text: str, wanted: frozenset[str]) -> str:
    """Escape every brace that is not around a placeholder: models write JSON into prompts without a second thought."""
    doubled = text.replace("{", "{{").replace("}", "}}")
    for name in wanted:
        doubled = doubled.replace(f"{{{{{name}}}}}", f"{{{name}}}")
    return doubled
