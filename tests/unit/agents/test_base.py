"""What a runner asks of an agent."""

from agl.agents.base import Agent, Assignment, MissingResourceError
from agl.errors import AgentError


class Silent:
    name = "silent"

    async def run(self, assignment: Assignment) -> object:
        return None


def test_any_object_with_a_name_and_run_is_an_agent() -> None:
    assert isinstance(Silent(), Agent)
    assert not isinstance(print, Agent)


def test_a_missing_resource_is_the_agents_failure() -> None:
    assert issubclass(MissingResourceError, AgentError)
