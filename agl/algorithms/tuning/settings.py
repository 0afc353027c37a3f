"""TuningSettings: where examples come from and how they are learned from, for SFT and DPO alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from agl.algorithms.training import TrainingSettings
from agl.errors import ConfigError

Tokens = Literal["auto", "record", "template"]


@dataclass(frozen=True, kw_only=True)
class TuningSettings(TrainingSettings):
    """Settings of the loop; those of all loops that move weights are in ``TrainingSettings``.

    Args:
        stores: earlier runs to learn from: store files, folders of runs, or URLs of served stores.
        store_run_id: only this run of theirs; null is all.
        store_token: of the servers among them.
        store_tokens: ``record`` takes the ids of the record; ``template`` writes the recorded messages by the policy's
            chat template, for runs of another model; ``auto`` takes the ids where they are the policy's own.
        rounds: how often the policy samples, filters and learns.
        group_size: rollouts of each task in a round; 0 is given data only; null is 8, or 0 where data are given.
        tasks_per_round: training tasks sampled in a round, the next ones in each; null is all.
        epochs: passes over a round's examples.
        minibatch_size: examples (or pairs) of an optimizer step.
        evaluate_every: optimizer steps between evaluations on the validation tasks; 0 is only after each round. The
            first and last policy always are.
        report_every: optimizer steps between lines of metrics.
        save_every: optimizer steps between checkpoints; each round ends with one.
    """

    stores: tuple[str, ...] = ()
    store_run_id: str | None = None
    store_token: str | None = field(default=None, repr=False)
    store_tokens: Tokens = "auto"
    rounds: int = 1
    group_size: int | None = None
    tasks_per_round: int | None = None
    epochs: int = 2
    minibatch_size: int = 32
    evaluate_every: int = 0
    report_every: int = 10
    save_every: int = 100

    def __post_init__(self) -> None:
        TrainingSettings.__post_init__(self)
        if isinstance(self.stores, str):
            raise ConfigError(f"stores={self.stores!r} must be a list")
        if self.store_tokens not in get_args(Tokens):
            raise ConfigError(
                f"store_tokens={self.store_tokens} must be one of {', '.join(get_args(Tokens))}"
            )
        for name in ("rounds", "epochs", "minibatch_size", "report_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.group_size is not None and self.group_size < 0:
            raise ConfigError(f"group_size={self.group_size} must be at least 0, or null")
        if self.tasks_per_round is not None and self.tasks_per_round < 1:
            raise ConfigError(f"tasks_per_round={self.tasks_per_round} must be at least 1, or null for all")
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
