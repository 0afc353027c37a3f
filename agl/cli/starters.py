"""The agents that `agl init` can begin with; light, as the command line's help lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Starter(StrEnum):
    """What a new recipe's agent is written with."""

    OPENAI = "openai"
    FUNCTION = "function"
    COMMAND = "command"
    ANTHROPIC = "anthropic"
    LITELLM = "litellm"
    LANGGRAPH = "langgraph"
    OPENAI_AGENTS = "openai_agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """What a starter needs.

    Args:
        words: what it is, in a sentence.
        modules: that its agent imports.
        packages: what to install for them beside agl and its extra ``torch``.
        extras: of agl's own that bring them, instead.
    """

    words: str
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    @property
    def install_line(self) -> str:
        """The command that installs all it takes to test and to train."""
        extras = ",".join(("torch", *self.extras))
        return " ".join(["pip install", f'"agl[{extras}]"', *self.packages, "pytest"])


FRAMEWORKS: Mapping[Starter, Framework] = MappingProxyType(
    {
        Starter.OPENAI: Framework(words="with OpenAI's client", modules=("openai",), extras=("openai",)),
        Starter.FUNCTION: Framework(words="a Python function without any framework"),
        Starter.COMMAND: Framework(words="a program of its own"),
        Starter.ANTHROPIC: Framework(
            words="with Anthropic's client", modules=("anthropic",), packages=("anthropic",)
        ),
        Starter.LITELLM: Framework(words="with LiteLLM", modules=("litellm",), extras=("litellm",)),
        Starter.LANGGRAPH: Framework(
            words="a LangGraph graph",
            modules=("langgraph", "langchain_openai"),
            packages=("langgraph", "langchain-openai"),
        ),
        Starter.OPENAI_AGENTS: Framework(
            words="of OpenAI's Agents SDK", modules=("agents",), packages=("openai-agents",)
        ),
    }
)
