"""RouteTable: which endpoints take a call, by the model it names, its agent and its mode. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agl.errors import ConfigError
from agl.types import ModelEndpoint

ANY = "*"
_MAX_FOUND = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """An endpoint's conditions, compiled."""

    name: str
    endpoint: ModelEndpoint
    model: re.Pattern[str]
    agents: tuple[re.Pattern[str], ...]

    def takes(self, model: str, agent: str | None, mode: str | None) -> bool:
        """Whether the endpoint is for such calls."""
        if self.endpoint.modes and mode not in self.endpoint.modes:
            return False
        return self.takes_agent(agent) if self.agents else self.model.fullmatch(model) is not None

    def takes_agent(self, agent: str | None) -> bool:
        """Whether it is one of the named agents."""
        return agent is not None and any(pattern.fullmatch(agent) for pattern in self.agents)

    def answers(self, model: str, agent: str | None, mode: str | None) -> bool:
        """Whether the endpoint can stand in for the one that took the call as one of ``model``."""
        if self.endpoint.modes and mode not in self.endpoint.modes:
            return False
        return self.model.fullmatch(model) is not None and (not self.agents or self.takes_agent(agent))


class _Route(NamedTuple):
    """Where calls of a kind go."""

    model: str | None
    names: Sequence[str]


class RouteTable:
    """Endpoints by priority; the first that takes a call decides, and others of its model stand behind it.

    Args:
        endpoints: by name; of equal priority the one listed first comes first. Withdrawn ones take nothing.

    Raises:
        ConfigError: an agent's regular expression is none.
    """

    def __init__(self, endpoints: Mapping[str, ModelEndpoint]) -> None:
        rules = [_rule(name, endpoint) for name, endpoint in endpoints.items() if not endpoint.withdrawn]
        self._rules = sorted(rules, key=lambda rule: -rule.endpoint.priority)
        self._found: dict[tuple[str, str | None, str | None], _Route] = {}
        """Routes of earlier calls: a call asks twice for its own, and most are alike."""

    @property
    def models(self) -> Sequence[str]:
        """The model names that calls can use; patterns name none."""
        names = {rule.endpoint.model: None for rule in self._rules if ANY not in rule.endpoint.model}
        return list(names)

    def model_of_call(self, model: str, *, agent: str | None, mode: str | None) -> str | None:
        """Return the name under which the call is answered, None when no endpoint takes it."""
        return self._route(model, agent, mode).model

    def route(self, model: str, *, agent: str | None, mode: str | None) -> list[str]:
        """Return the names of the endpoints for a call, in the order in which they are tried."""
        return list(self._route(model, agent, mode).names)

    def _route(self, model: str, agent: str | None, mode: str | None) -> _Route:
        asked = (model, agent, mode)
        known = self._found.get(asked)
        if known is None:
            if len(self._found) >= _MAX_FOUND:  # names come from clients
                self._found.clear()
            known = self._found[asked] = self._looked_up(model, agent, mode)
        return known

    def _looked_up(self, model: str, agent: str | None, mode: str | None) -> _Route:
        taking = (index for index, rule in enumerate(self._rules) if rule.takes(model, agent, mode))
        first = next(taking, None)
        if first is None:
            return _Route(None, ())
        rule = self._rules[first]
        addressed = _addressed(rule, model)
        later = (other.name for other in self._rules[first + 1 :] if other.answers(addressed, agent, mode))
        return _Route(addressed, (rule.name, *later))


def _addressed(rule: _Rule, model: str) -> str:
    return model if ANY in rule.endpoint.model else rule.endpoint.model


def _rule(name: str, endpoint: ModelEndpoint) -> _Rule:
    try:
        agents = tuple(re.compile(agent) for agent in endpoint.agents)
    except re.error as error:
        raise ConfigError(
            f"endpoint {name}: agents: {error.pattern!r} is no regular expression: {error}"
        ) from error
    model = ".*".join(re.escape(part) for part in endpoint.model.split(ANY))
    return _Rule(name=name, endpoint=endpoint, model=re.compile(model, re.DOTALL), agents=agents)
