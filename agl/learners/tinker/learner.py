"""TinkerLearner: gradients, optimizer and weights are the Tinker service's; what to learn from is chosen here.

The policy trained is a low-rank adapter of one of the service's base models. Weights never travel: an engine of the
same service (``inference=tinker``) serves them by name.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from uuid import uuid4

from agl.errors import AglError, CheckpointError, ConfigError, RunStoppedError, require_extra
from agl.inference.huggingface import (
    check_tokenizer_folder,
    end_token_ids,
    load_generation_config,
    load_tokenizer,
)
from agl.inference.tinker_service import TinkerService, TinkerServiceError
from agl.learners.base import ChatTokens
from agl.learners.steps import Schedule, learning_rate_at, minibatches, token_weights
from agl.learners.tinker.adapter import download, write_about
from agl.learners.tinker.datums import Row, check_loss, remote_loss, row_from_sample, row_from_trajectory
from agl.learners.tinker.exchange import datums_of, logprobs_of
from agl.learners.tinker.report import UpdateMetrics, tally_of
from agl.learners.tinker.settings import AdamSettings, AdapterSettings, Waits
from agl.learners.tinker.state import SavedState, read_state, write_state
from agl.types.policy import Policy
from agl.types.sample import LikelihoodLoss, Loss, PolicyLoss, TrainingSample, Trajectory, UpdateReport
from agl.types.weights import PolicyWeights

if TYPE_CHECKING:
    import tinker

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Training:
    """What entering opens, and what is counted."""

    stack: AsyncExitStack
    service: TinkerService
    client: tinker.TrainingClient
    rng: random.Random
    policy_version: int = 0
    optimizer_steps: int = 0
    chat: ChatTokens | None = None


class TinkerLearner:
    """Trains a low-rank adapter by the Tinker service's losses and AdamW.

    Args:
        policy: ``path`` is the tokenizer's folder or name; device, dtype and weights are the service's.
        base_model: what the service calls the model; None is ``policy.path``.
        rank: of the adapter.
        train_attn: adapt the attention layers.
        train_mlp: adapt the feed-forward layers.
        train_unembed: adapt the output embedding.
        learning_rate: of a warm optimizer at the begin of the run.
        warmup_steps: optimizer steps in which the learning rate rises from 0.
        schedule: what the learning rate does then over the run; all but ``constant`` end at 0.
        weight_decay: AdamW's.
        beta1: AdamW's decay of the mean.
        beta2: AdamW's decay of the variance.
        max_grad_norm: a longer gradient is cut to this length.
        critic: what a recipe has for algorithms with values; there are none here, and others do not look at it.
        weights_ttl_seconds: how long the service keeps weights that were published for sampling; a resumed run
            publishes them anew.
        state_ttl_seconds: how long the service keeps the states of checkpoints; None is for good.
        timeout_seconds: the longest wait for an answer.
        connect_seconds: the longest wait for a session with the service.
        seed: of the adapter's first weights and the minibatches' order.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        base_model: str | None = None,
        rank: int = 32,
        train_attn: bool = True,
        train_mlp: bool = True,
        train_unembed: bool = True,
        learning_rate: float = 1e-4,
        warmup_steps: int = 0,
        schedule: Schedule = "constant",
        weight_decay: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.95,
        max_grad_norm: float = 1.0,
        critic: Literal["none", "head", "model"] = "none",
        weights_ttl_seconds: int = 86_400,
        state_ttl_seconds: int | None = 2_592_000,
        timeout_seconds: float = 1800.0,
        connect_seconds: float = 60.0,
        seed: int = 0,
    ) -> None:
        self._adam = AdamSettings(
            learning_rate=learning_rate,
            warmup_steps=warmup_steps,
            schedule=schedule,
            weight_decay=weight_decay,
            beta1=beta1,
            beta2=beta2,
            max_grad_norm=max_grad_norm,
        )
        self._adapter = AdapterSettings(
            rank=rank, train_attn=train_attn, train_mlp=train_mlp, train_unembed=train_unembed
        )
        self._waits = Waits(
            weights_ttl_seconds=weights_ttl_seconds,
            state_ttl_seconds=state_ttl_seconds,
            timeout_seconds=timeout_seconds,
            connect_seconds=connect_seconds,
        )
        if policy.lora is not None:
            raise ConfigError(
                "policy.lora: the Tinker service's adapter is set by learner.rank; use policy=huggingface"
            )
        require_extra("the tinker learner", "tinker", "tinker", "transformers")
        check_tokenizer_folder(policy)
        self._policy = policy
        self._base_model = base_model or policy.path
        self._critic = critic
        self._seed = seed
        self._opened: _Training | None = None

    @property
    def kept_as(self) -> str:
        """What the service calls the weights to begin with."""
        return f"Tinker's {self._base_model}"

    async def __aenter__(self) -> Self:
        """Open a session with the service and begin a training run there.

        Raises:
            ConfigError: the key or the model is at fault.
            TinkerServiceError: the service cannot be reached, or refuses.
        """
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(
                TinkerService(
                    connect_seconds=self._waits.connect_seconds, timeout_seconds=self._waits.timeout_seconds
                )
            )
            await service.model_length(self._base_model, setting="learner.base_model")
            client = await service.answer(
                f"the Tinker service began no training run of {self._base_model}",
                lambda: service.client.create_lora_training_client(
                    self._base_model, seed=self._seed, **asdict(self._adapter)
                ),
            )
            self._opened = _Training(
                service=service, client=client, rng=random.Random(self._seed), stack=stack.pop_all()
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session; the service keeps what was saved."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.stack.aclose()

    @property
    def policy_version(self) -> int:
        """How many ``update`` calls have changed the weights; 0 while the learner is not open."""
        return 0 if self._opened is None else self._opened.policy_version

    def check(self, loss: Loss, *, needs_values: bool) -> None:
        """Refuse a loss that the service has not, and any need of values.

        Raises:
            ConfigError: the message names the setting.
        """
        check_loss(loss, needs_values=needs_values)

    async def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return the current policy's logprob of every token, at temperature 1.

        One list a trajectory, as long as its ``token_ids``; 0.0 where ``loss_mask`` is 0.
        """
        rows = [row_from_trajectory(trajectory) for trajectory in trajectories]
        present = [row for row in rows if row is not None]
        numbers = iter(await self._logprobs(present) if present else [])
        lines: list[list[float]] = []
        for trajectory, row in zip(trajectories, rows, strict=True):
            line = [0.0] * len(trajectory.token_ids)
            if row is not None:
                for position, number in zip(row.positions, next(numbers), strict=True):
                    line[position] = number
            lines.append(line)
        return lines

    async def values(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:  # noqa: ARG002 - Learner's
        """Refuse.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("the algorithm needs values, and the Tinker service trains no value model")

    async def update(self, samples: Sequence[TrainingSample], loss: Loss) -> UpdateReport:
        """Take the optimizer steps that ``loss`` asks for; no samples change nothing.

        Raises:
            ConfigError: the service does not have the loss, or a sample is of another temperature than 1.
            ValueError: a sample contradicts itself.
            RunStoppedError: the service failed, or the loss is not finite.
        """
        opened, begun = self._training(), time.perf_counter()
        self.check(loss, needs_values=False)
        assert isinstance(loss, PolicyLoss | LikelihoodLoss)
        found = [row_from_sample(sample) for sample in samples]
        rows = [row for row in found if row is not None]
        metrics = {
            "sequences": float(len(rows)),
            "sampled_tokens": float(sum(len(row.positions) for row in rows)),
            "tokens": float(sum(len(row.inputs) for row in rows)),
        }
        steps = 0
        if rows:
            done = UpdateMetrics(loss=loss)
            epochs, at_most = (
                (loss.epochs, loss.minibatch_rollouts) if isinstance(loss, PolicyLoss) else (1, None)
            )
            for _ in range(epochs):
                for batch in minibatches(rows, at_most, opened.rng, unit=lambda row: row.rollout_id):
                    await self._step(opened, batch, loss, done)
                    steps += 1
            opened.policy_version += 1
            metrics |= done.metrics()
        metrics["seconds"] = time.perf_counter() - begun
        return UpdateReport(optimizer_steps=steps, policy_version=opened.policy_version, metrics=metrics)

    async def weights(self) -> PolicyWeights:
        """Let the service keep the current weights for sampling, and return their name."""
        opened = self._training()
        name = self._new_name(opened)
        saved = await self._answer(
            "the Tinker service did not publish the weights",
            lambda: opened.client.save_weights_for_sampler(name, ttl_seconds=self._waits.weights_ttl_seconds),
        )
        return PolicyWeights(policy_version=opened.policy_version, remote=saved.path)

    async def save(self, folder: Path) -> None:
        """Let the service keep weights and optimizer, and write their name and the counters into an empty folder."""
        opened = self._training()
        name = self._new_name(opened)
        saved = await self._answer(
            "the Tinker service did not save the state",
            lambda: opened.client.save_state(name, ttl_seconds=self._waits.state_ttl_seconds),
        )
        state = SavedState(
            path=saved.path,
            policy_version=opened.policy_version,
            optimizer_steps=opened.optimizer_steps,
            rng=opened.rng,
        )
        await asyncio.to_thread(write_state, folder, state, self._fits)

    async def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote, in a training run of its own.

        Raises:
            CheckpointError: the folder is not complete or of another policy, or the service no longer has the state.
        """
        opened = self._training()
        state = await asyncio.to_thread(read_state, folder, self._fits)
        try:
            client = await opened.service.answer(
                f"{folder}: the Tinker service does not give the state {state.path} back",
                lambda: opened.service.client.create_training_client_from_state_with_optimizer(state.path),
            )
        except TinkerServiceError as error:
            raise CheckpointError(str(error)) from error
        opened.client, opened.rng = client, state.rng
        opened.policy_version, opened.optimizer_steps = state.policy_version, state.optimizer_steps

    async def save_policy(self, folder: Path) -> None:
        """Write the adapter, as far as the service gives it out, the tokenizer, and the name of its sampler weights."""
        opened = self._training()
        name = self._new_name(opened)
        kept = await self._answer(
            "the Tinker service did not publish the weights",
            lambda: opened.client.save_weights_for_sampler(name),
        )
        chat = await self.chat_tokens()
        await asyncio.to_thread(write_about, folder, {**self._fits, "weights": kept.path}, chat.tokenizer)
        try:
            await self._fetch_adapter(opened, name, folder)
        except AglError as error:
            log.warning("the adapter was not fetched: %s; the service keeps it as %s", error, kept.path)

    async def chat_tokens(self) -> ChatTokens:
        """Return the policy's tokenizer, with its chat template, and the tokens that end an answer."""
        opened = self._training()
        if opened.chat is None:
            opened.chat = await asyncio.to_thread(_chat_tokens, self._policy)
        return opened.chat

    @property
    def _fits(self) -> dict[str, Any]:
        return {"base_model": self._base_model, **asdict(self._adapter)}

    def _training(self) -> _Training:
        if self._opened is None:
            raise AglError("the learner is not open; use it inside 'async with learner:'")
        return self._opened

    def _new_name(self, opened: _Training) -> str:
        """A name that no other save of the training run has: a resumed run may come by the same step again."""
        return f"agl-step-{opened.optimizer_steps:06d}-{uuid4().hex[:8]}"

    async def _answer(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the service's answer.

        Raises:
            RunStoppedError: there is none, and how far the service came is not known.
        """
        try:
            return await self._training().service.answer(what, ask)
        except TinkerServiceError as error:
            raise RunStoppedError(
                f"{error}; what was saved is still there: --resume goes on from the last checkpoint"
            ) from error

    async def _logprobs(self, rows: Sequence[Row]) -> list[list[float]]:
        opened, likelihood = self._training(), LikelihoodLoss()
        data = await asyncio.to_thread(datums_of, rows, [1.0] * len(rows), likelihood)
        output = await self._answer(
            "the Tinker service did not compute logprobs",
            lambda: opened.client.forward(data, "cross_entropy"),
        )
        return logprobs_of(rows, output)

    async def _step(
        self, opened: _Training, rows: Sequence[Row], loss: PolicyLoss | LikelihoodLoss, done: UpdateMetrics
    ) -> None:
        """Gather one minibatch's gradient and step along it; both are asked for at once, as the service wants it."""
        weights = token_weights(
            [row.rollout_id for row in rows],
            [len(row.positions) for row in rows],
            [row.weight for row in rows],
            loss.aggregation,
        )
        data = await asyncio.to_thread(datums_of, rows, weights, loss)
        asked = remote_loss(loss)
        rate = learning_rate_at(opened.optimizer_steps, loss.progress, self._adam)

        async def ask() -> tuple[tinker.ForwardBackwardOutput, tinker.OptimStepResponse]:
            gradient = opened.client.forward_backward(data, asked.name, asked.settings)  # pyright: ignore[reportArgumentType]
            step = opened.client.optim_step(self._adam.params(rate))
            return await gradient, await step

        output, stepped = await self._answer("the Tinker service did not take the optimizer step", ask)
        opened.optimizer_steps += 1
        tally = tally_of(rows, logprobs_of(rows, output), weights, loss)
        if not abs(tally.loss) < float("inf"):
            raise RunStoppedError(
                f"the loss of optimizer step {opened.optimizer_steps} is {tally.loss}: lower learner.learning_rate or "
                "look for broken rewards, and --resume from the last checkpoint"
            )
        done.tallies.append(tally)
        done.service.append(stepped.metrics or {})
        done.learning_rate = rate

    async def _fetch_adapter(self, opened: _Training, name: str, folder: Path) -> None:
        what = "the Tinker service does not give the adapter out"
        saved = await opened.service.answer(what, lambda: opened.client.save_weights_external(name))
        rest = await opened.service.rest()
        given = await opened.service.answer(what, lambda: rest.get_external_weights_urls(saved.path))
        await download(given.urls, folder, timeout_seconds=self._waits.connect_seconds)


def _chat_tokens(policy: Policy) -> ChatTokens:
    tokenizer = load_tokenizer(policy)
    return ChatTokens(tokenizer=tokenizer, end_ids=end_token_ids(tokenizer, load_generation_config(policy)))
