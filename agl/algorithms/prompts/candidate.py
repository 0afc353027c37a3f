"""Candidate: the prompts of an agent under test, and what they were made from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agl.errors import ConfigError, InvalidRequestError
from agl.types import PromptTemplate, Resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One set of prompts.

    Args:
        prompts: by resource name; all that the search may change.
        parent: the id of the candidate that it was made from, None for the first.
        made_by: how, in a few words: ``start``, ``rewrite``, ``merge``.
    """

    prompts: Mapping[str, PromptTemplate]
    parent: str | None = None
    made_by: str = "start"

    @property
    def candidate_id(self) -> str:
        """Twelve hex digits of the prompts' texts: equal prompts are one candidate, however they were found."""
        if len(self.prompts) == 1:
            return next(iter(self.prompts.values())).template_id
        text = "\0".join(f"{name}={self.prompts[name].template_id}" for name in sorted(self.prompts))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def changed(self, name: str, template: str, *, made_by: str) -> Candidate:
        """Return a candidate that differs in one prompt."""
        prompts = {**self.prompts, name: self.prompts[name].changed_to(template)}
        return replace(self, prompts=prompts, parent=self.candidate_id, made_by=made_by)


def first_candidate(resources: Mapping[str, Resource], names: Sequence[str] | None) -> Candidate:
    """Return the prompts that a search begins with.

    Args:
        resources: what the run gives its agents.
        names: of the prompts to improve; None: all.

    Raises:
        ConfigError: there is none, a name is no prompt, or a text is no template of its engine.
    """
    found = {name: value for name, value in resources.items() if isinstance(value, PromptTemplate)}
    if not found:
        raise ConfigError(
            "resources has no prompt to improve: give one, such as resources.prompt_template="
            "{kind: prompt_template, template: '... {task} ...'}, and take it in the agent by that name"
        )
    for name in names or ():
        if name not in found:
            raise ConfigError(
                f"algorithm.prompts names {name!r}, which is no prompt of resources ({', '.join(found)})"
            )
    chosen = {name: found[name] for name in names or found}
    for name, prompt in chosen.items():
        try:
            _ = prompt.placeholders
        except InvalidRequestError as error:
            raise ConfigError(f"resources.{name}: {error}") from error
    return Candidate(prompts=chosen)
