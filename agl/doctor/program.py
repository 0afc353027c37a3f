"""The agent: whether all that it takes by name is there, or its program is."""

from __future__ import annotations

from collections.abc import Mapping

from agl.agents.base import Agent, Bound, MissingResourceError
from agl.agents.command import CommandAgent
from agl.doctor.findings import Finding, failure, fine
from agl.types import LLM, Resource


async def agent(built: Agent, resources: Mapping[str, Resource]) -> list[Finding]:
    """Look whether the agent can be called with the model and these resources.

    Args:
        built: the agent.
        resources: beside the model, which it gets as ``llm``.
    """
    given: dict[str, Resource] = {"llm": LLM(base_url="http://unset", model="policy"), **resources}
    if isinstance(built, Bound):
        try:
            built.check_resources(given)
        except MissingResourceError as error:
            fix = "publish it with resources={...}, or give the parameter a default or a setting (agent.settings)"
            return [failure("agent", " ".join(str(error).split()), fix)]
        return [fine("agent", f"{built.name} takes what it is given: {', '.join(given)}")]
    if isinstance(built, CommandAgent):
        async with built.running():
            pass
        return [fine("agent", f"the program {built.name} is there")]
    return [fine("agent", built.name)]
