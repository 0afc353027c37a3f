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
_FENCED = re.compile(r"```[\w-]*\n(.*?)\n?```", re.DOTALL)
_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}|\{|\}")


class RefusedRewriteError(Exception):
    """The answer cannot become a prompt.

    Args:
        cause: a short, countable name: ``empty``, ``unmarked``, ``unchanged``, ``unfinished``, ``too_long``,
            ``unknown_placeholder``, ``lost_placeholder``, ``not_a_template``.
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
            ``placeholder`` (a misspelt one was put right, or a lost one put at the end).
    """

    text: str
    repairs: tuple[str, ...] = ()


def rewrite_from_answer(answer: str, prompt: PromptTemplate, *, repair: bool = True) -> Rewrite:
    """Return the new text of a prompt out of a model's answer.

    The text stands between ``<prompt>`` and ``</prompt>``, or in a code fence; a whole answer without either is taken
    for a prompt only where all placeholders are in it: words about the prompt, or a polite no, are none. The text must
    need the very placeholders that the prompt needs.

    Args:
        answer: the model's.
        prompt: what was to be rewritten.
        repair: mend braces and placeholders; else such a rewrite is refused.

    Raises:
        RefusedRewriteError: the answer cannot be used; the cause says why.
    """
    text = _text_in(answer, prompt)
    if not text:
        raise RefusedRewriteError("empty", "the rewrite is empty")
    if len(text) > max(MIN_LIMIT_CHARACTERS, MAX_GROWTH * len(prompt.template)):
        raise RefusedRewriteError("too_long", f"the rewrite has {len(text)} characters")
    wanted, repairs = prompt.placeholders, list[str]()
    if repair:
        text = _mended(text, prompt, wanted, repairs)
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
    return Rewrite(text=text, repairs=tuple(dict.fromkeys(repairs)))


def placeholder_text(prompt: PromptTemplate, name: str) -> str:
    """Return a placeholder as it is written in the prompt's engine."""
    return {"f-string": "{%s}", "jinja2": "{{ %s }}", "poml": "{{ %s }}"}[prompt.engine] % name


_SPELLINGS = {
    "f-string": (r"(?<!\{)\{%s\}(?!\})", r"\{+\s*%s\s*\}+"),
    "jinja2": (r"\{[{%%][^}]*\b%s\b", r"(?<!\{)\{\s*%s\s*\}(?!\})"),
    "poml": (r"\{\{[^}]*\b%s\b", r"(?<!\{)\{\s*%s\s*\}(?!\})"),
}
"""How a placeholder looks where it is right, and where a model writes it as another engine does."""
_PLACED = {"f-string": "{%s}", "jinja2": "{{ %s }}", "poml": "<p>{{ %s }}</p>"}
"""A placeholder in a place of its own."""


def _text_in(answer: str, prompt: PromptTemplate) -> str:
    tagged = _TAGGED.findall(answer)
    if tagged:
        return tagged[-1].strip()
    if _OPENED.search(answer):
        raise RefusedRewriteError("unfinished", "the rewrite breaks off before </prompt>")
    fenced = _FENCED.findall(answer)
    if fenced:
        return max(fenced, key=len).strip()
    text = answer.strip()
    names = prompt.placeholders
    if text and not (names and all(re.search(rf"\{{\s*{re.escape(name)}\s*\}}", text) for name in names)):
        raise RefusedRewriteError("unmarked", f"no <prompt> in the answer: {text[:200]}")
    return text


def _mended(text: str, prompt: PromptTemplate, wanted: frozenset[str], repairs: list[str]) -> str:
    """Write placeholders as the engine does, and escape braces that are none."""
    right, misspelt = _SPELLINGS[prompt.engine]
    for name in sorted(wanted):
        if not re.search(right % re.escape(name), text):
            text, changes = re.subn(misspelt % re.escape(name), placeholder_text(prompt, name), text)
            repairs += ["placeholder"] * bool(changes)
    if prompt.engine == "f-string" and not _fits(text, prompt, wanted):
        text = _escaped(text, wanted)
        repairs.append("braces")
    return text


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
    """Escape every brace that is not around a placeholder: models write JSON into prompts without a second thought.

    Where the text escapes some braces itself, pairs are left as they are.
    """
    escapes = "{{" in text

    def escaped(found: re.Match[str]) -> str:
        braces, name = found.group(0), found.group(1)
        if name is not None:
            return braces if name in wanted else f"{{{{{name}}}}}"
        return braces if escapes and len(braces) == 2 else braces * 2

    return _BRACES.sub(escaped, text)
