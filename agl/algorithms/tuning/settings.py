"""TuningSettings: where examples come from and how they are learned from, for SFT and DPO alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agl.algorithms.retries import RetrySettings
from agl.errors import ConfigError

Tokens = Literal["auto", "record", "template"]


@dataclass(frozen=True, kw_only=True)
class TuningSettings(RetrySettings):
    """Settings of the loop; those of a single rollout are in ``RetrySettings``.

    Args:
        stores: earlier runs to learn from: store files, folders of runs, or URLs of served stores.
        store_run_id: only this run of theirs; null is all.
        store_token: of the servers among them.
        store_tokens: ``record`` takes the ids of the record; ``template`` writes the recorded messages by the policy's
            chat template, for runs of another model; ``auto`` takes the ids where they are the policy's own.
        rounds: how often the policy samples, filters and learns.
        group_size: rollouts of each task in a round; 0 is given data only; null is 8, or 0 where data are given.
        tasks_per_round: training tasks sampled in a round, the next ones in each; null is all.
        temperature: of these rollouts.
        max_tokens: longest answer of one call.
        epochs: passes over a round's examples.
        minibatch_size: examples (or pairs) of an optimizer step.
        evaluate_every: optimizer steps between evaluations on the validation tasks; 0 is only after each round. The
            first and last policy always are.
        evaluate_greedy: evaluate at temperature 0 too.
        report_every: optimizer steps between lines of metrics.
        save_every: optimizer steps between checkpoints; each round ends with one.
        keep_checkpoints: how many stay.
        max_bad_fraction: stop the run above this fraction of a round's rollouts without anything to learn from.
    """

    stores: tuple[str, ...] = ()
    store_run_id: str | None = None
    store_token: str | None = field(default=None, repr=False)
    store_tokens: Tokens = "auto"
    rounds: int = 1
    group_size: int | None = None
    tasks_per_round: int | None = None
    temperature: float = 1.0
    max_tokens: int = 1024
    epochs: int = 2
    minibatch_size: int = 32
    evaluate_every: int = 0
    evaluate_greedy: bool = True
    report_every: int = 10
    save_every: int = 100
    keep_checkpoints: int = 2
    max_bad_fraction: float = 0.5

    def __post_init__(self) -> None:
        RetrySettings.__post_init__(self)
        if isinstance(self.stores, str):
            raise ConfigError(f"stores={self.stores!r} must be a list")
        if self.store_tokens not in get_args(Tokens):
            raise ConfigError(
                f"store_tokens={self.store_tokens} must be one of {', '.join(get_args(Tokens))}"
            )
        for name in (
            "rounds",
            "max_tokens",
            "epochs",
            "minibatch_size",
            "report_every",
            "save_every",
            "keep_checkpoints",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.group_size is not None and self.group_size < 0:
            raise ConfigError(f"group_size={self.group_size} must be at least 0, or null")
        if self.tasks_per_round is not None and self.tasks_per_round < 1:
            raise ConfigError(f"tasks_per_round={self.tasks_per_round} must be at least 1, or null for all")
        if self.evaluate_every < 0:
            raise ConfigError(f"evaluate_every={self.evaluate_every} must be 0 (after each round) or more")
        if self.temperature <= 0:
            raise ConfigError(f"temperature={self.temperature}: rounds sample, so it must be above 0")
        if not 0 <= self.max_bad_fraction <= 1:
            raise ConfigError(f"max_bad_fraction={self.max_bad_fraction} must be between 0 and 1")
        self._check_sources()

    def _check_sources(self) -> None:
        if self.num_samples == 0 and not self.has_data:
            raise ConfigError("group_size=0 samples nothing, and no data are given to learn from")
        if self.num_samples == 0 and self.rounds > 1:
            raise ConfigError(
                f"rounds={self.rounds} samples anew in each round, and group_size=0 samples nothing: set one of them,"
                " or algorithm.epochs for more passes over the given data"
            )

    @property
    def has_data(self) -> bool:
        """Whether there is something to learn from before anything is sampled."""
        return bool(self.stores)

    @property
    def num_samples(self) -> int:
        """Rollouts of each task in a round."""
        if self.group_size is not None:
            return self.group_size
        return 0 if self.has_data else 8

    @property
    def looks_back(self) -> bool:
        """Whether a round learns from the rollouts of earlier ones, too."""
        return False

    def train_sampling(self) -> dict[str, Any]:
        """Request parameters of the calls that are sampled to learn from."""
        return {"temperature": self.temperature, "top_p": 1.0, "max_tokens": self.max_tokens}

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Request parameters of each evaluation, by metric name."""
        sampled = {"temperature": 1.0, "top_p": 1.0, "max_tokens": self.max_tokens}
        named = {"val/reward": sampled}
        return named | (
            {"val/reward_greedy": {**sampled, "temperature": 0.0}} if self.evaluate_greedy else {}
        )
