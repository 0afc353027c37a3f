"""SFT: supervised fine-tuning on the successful interactions of earlier runs, of files, or of the policy itself.

Source of the loop (sample, filter, tune, repeat): rejection-sampling fine-tuning, arXiv:2308.01825, section 3.3, in
    rounds as RAFT, arXiv:2304.06767, algorithm 1. Differences: each round goes on from the weights of the one before;
    an interaction is a whole conversation of an agent, learned on the exact tokens that were sampled; what is the same
    in the same task is learned once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agl.algorithms.base import RunContext
from agl.algorithms.tuning.chat_files import examples_of_files
from agl.algorithms.tuning.examples import Example, curated, samples_of_example
from agl.algorithms.tuning.loop import Lesson, TuningAlgorithm
from agl.algorithms.tuning.past_runs import examples_of_earlier_stages, examples_of_stores
from agl.errors import ConfigError, RunStoppedError
from agl.learners.base import Learner, ReadsChats
from agl.types import LikelihoodLoss
from agl.types.sample import Aggregation


@dataclass(frozen=True, kw_only=True)
class SFT(TuningAlgorithm):
    """Learns to do again what went well.

    Args:
        files: conversations to learn from, ``.jsonl`` or ``.json`` in the format of OpenAI or ShareGPT.
        earlier_stages: learn from the training rollouts of this run's stages before this one, too (algorithm=ladder).
        min_reward: interactions with less are left out; those of files have no reward and stay.
        top_k: of each task only the so many best; null is all.
        dedupe: of interactions of a task that are the same tokens keep one.
        keep_earlier: a round learns from the good rollouts of the rounds before, too.
        aggregation: ``token_mean`` weighs every token alike, ``rollout_mean`` every interaction.
    """

    files: tuple[str, ...] = ()
    earlier_stages: bool = False
    min_reward: float = 1.0
    top_k: int | None = None
    dedupe: bool = True
    keep_earlier: bool = True
    aggregation: Aggregation = "token_mean"

    def __post_init__(self) -> None:
        TuningAlgorithm.__post_init__(self)
        if isinstance(self.files, str):
            raise ConfigError(f"files={self.files!r} must be a list")
        missing = [file for file in self.files if not Path(file).expanduser().is_file()]
        if missing:
            raise ConfigError(f"files: there is no file {missing[0]}")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k={self.top_k} must be at least 1, or null for all")

    @property
    def has_data(self) -> bool:
        """Whether there is something to learn from before anything is sampled."""
        return bool(self.files or self.stores or self.earlier_stages)

    def check(self, learner: Learner | None, *, trainable: bool) -> None:
        """Refuse parts that cannot train the policy with this loss, or read its files."""
        TuningAlgorithm.check(self, learner, trainable=trainable)
        if self.files and not isinstance(learner, ReadsChats):
            raise ConfigError("files need a learner that knows the policy's chat template: learner=torch")

    async def given(self, context: RunContext, learner: Learner) -> tuple[list[Example], Counter[str]]:
        """Return the files' conversations and the stores' good rollouts, and what was left out, by cause."""
        written, unread = await examples_of_files(self.files, learner, max_tokens=context.adapter.max_tokens)
        recorded, unusable = await examples_of_stores(
            self, context.adapter, learner, min_reward=self.min_reward
        )
        given, left_out = [*written, *recorded], unread + unusable
        if self.earlier_stages:
            before, unusable = await examples_of_earlier_stages(
                self, context, learner, min_reward=self.min_reward
            )
            given, left_out = [*given, *before], left_out + unusable
        return given, left_out

    @property
    def looks_back(self) -> bool:
        """Whether a round learns from the rollouts of earlier ones, too."""
        return self.keep_earlier

    def loss(self) -> LikelihoodLoss:
        """The negative logarithm of each masked token's probability."""
        return LikelihoodLoss(aggregation=self.aggregation)

    def lesson(self, given: Sequence[Example], rounds: Sequence[Sequence[Example]]) -> Lesson:
        """Choose the good interactions."""
        own = rounds if self.keep_earlier else rounds[-1:]
        newest_first = [example for one in reversed(own) for example in one]
        every = [*given, *newest_first]
        found = curated(every, min_reward=self.min_reward, top_k=self.top_k, dedupe=self.dedupe)
        if not found.examples:
            rewards = [one.reward for one in every if one.reward is not None]
            best = f"; the best reward of {len(rewards)} was {max(rewards):g}" if rewards else ""
            raise RunStoppedError(
                f"no interaction is good enough to learn from (algorithm.min_reward={self.min_reward:g}){best}"
            )
        rewards = [one.reward for one in found.examples if one.reward is not None]
        metrics = {
            "examples": float(len(found.examples)),
            "tasks": float(len({one.task for one in found.examples})),
            "tokens": float(sum(one.num_tokens for one in found.examples)),
            **{f"left_out/{cause}": float(count) for cause, count in sorted(found.left_out.items())},
        }
        if rewards:
            metrics["reward"] = sum(rewards) / len(rewards)
        return Lesson(units=[samples_of_example(one) for one in found.examples], metrics=metrics)
