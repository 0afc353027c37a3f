"""RouteTable: which endpoints take a call, by the model it names, its agent and its mode. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agl.errors import ConfigError
from agl.types import ModelEndpoint

ANY = "*"


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

    @property
    def models(self) -> Sequence[str]:
        """The model names that calls can use; patterns name none."""
        names = {rule.endpoint.model: None for rule in self._rules if ANY not in rule.endpoint.model}
        return list(names)

    def model_of_call(self, model: str, *, agent: str | None, mode: str | None) -> str | None:
        """Return the name under which the call is answered, None when no endpoint takes it."""
        first = self._first(model, agent, mode)
        return None if first is None else _addressed(self._rules[first], model)

    def route(self, model: str, *, agent: str | None, mode: str | None) -> list[str]:
        """Return the names of the endpoints for a call, in the order in which they are tried."""
        first = self._first(model, agent, mode)
        if first is None:
            return []
        addressed = _addressed(self._rules[first], model)
        later = self._rules[first + 1 :]
        return [
            self._rules[first].name,
            *(rule.name for rule in later if rule.answers(addressed, agent, mode)),
        ]

    def _first(self, model: str, agent: str | None, mode: str | None) -> int | None:
        found = (index for index, rule in enumerate(self._rules) if rule.takes(model, agent, mode))
        return next(found, None)


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
