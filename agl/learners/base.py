"""Learner: turns samples into new weights, without knowing the algorithm that made them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agl.types.sample import Loss, TrainingSample, Trajectory, UpdateReport
from agl.types.weights import PolicyWeights


@runtime_checkable
class Learner(AbstractAsyncContextManager["Learner"], Protocol):
    """Holds the trained policy, its optimizer and, when asked for, a critic and a frozen reference.

    Entering loads the models. No method blocks the event loop.
    """

    @property
    def policy_version(self) -> int:
        """How many ``update`` calls have changed the weights."""
        ...

    def check(self, loss: Loss, *, needs_values: bool) -> None:
        """Refuse, also before it is entered, a loss or a call of ``values`` that this learner is not built for.

        Raises:
            ConfigError: the message names the setting.
        """
        ...

    async def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return the current policy's logprob of every token, under each trajectory's temperature.

        One list a trajectory, as long as its ``token_ids``; 0.0 where ``loss_mask`` is 0.
        """
        ...

    async def values(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return the critic's value of the state in which each token was sampled; 0.0 where ``loss_mask`` is 0.

        Raises:
            ConfigError: the learner was built without a critic.
        """
        ...

    async def update(self, samples: Sequence[TrainingSample], loss: Loss) -> UpdateReport:
        """Take the optimizer steps that ``loss`` asks for. An empty list changes nothing and says so in the report."""
        ...

    async def weights(self) -> PolicyWeights:
        """Return a copy of the current weights, ready for an engine."""
        ...

    async def save(self, folder: Path) -> None:
        """Write everything that ``load`` needs to go on as if never stopped, into an empty folder."""
        ...

    async def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote. CheckpointError when the folder is not complete or of another policy."""
        ...

    async def save_policy(self, folder: Path) -> None:
        """Write the policy as an ordinary Hugging Face folder with its tokenizer; LoRA merged."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTokens:
    """How the policy writes conversations.

    Args:
        tokenizer: transformers' tokenizer, with a chat template.
        end_ids: the tokens that end an answer.
    """

    tokenizer: Any
    end_ids: frozenset[int]


@runtime_checkable
class ReadsChats(Protocol):
    """A learner that can also turn text into the tokens of its policy."""

    async def chat_tokens(self) -> ChatTokens:
        """Return how the policy writes conversations."""
        ...


@runtime_checkable
class SavesAdapters(Protocol):
    """A learner that can write its LoRA adapter apart from the base."""

    async def save_adapter(self, folder: Path) -> None:
        """Write the adapter in PEFT's form, with the policy's tokenizer, into a folder that is there.

        Raises:
            ConfigError: the policy has no adapter.
        """
        ...
