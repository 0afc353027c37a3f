"""What a runner asks of an agent."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agl.agents.base import Agent, Assignment, LongLived, MissingResourceError, opened
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


class Lasting(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        self.said.append("up")
        yield
        self.said.append("down")


async def test_an_agent_that_needs_set_up_gets_it_around_the_block() -> None:
    agent = Lasting()
    async with opened(agent) as given:
        assert given is agent
        assert agent.said == ["up"]
    assert agent.said == ["up", "down"]


async def test_any_other_agent_is_opened_by_doing_nothing() -> None:
    agent = Silent()
    assert not isinstance(agent, LongLived)
    async with opened(agent) as given:
        assert given is agent


def test_what_an_assignment_shows_of_itself_has_no_secret(assignment) -> None:
    made = Assignment(
        rollout=assignment().rollout, attempt=assignment().attempt, environment={"AGL_STORE_TOKEN": "secret"}
    )
    assert "secret" not in repr(made)
