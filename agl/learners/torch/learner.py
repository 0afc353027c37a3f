"""TorchLearner: the learner of one process, on CPU or one GPU, with all of torch's work in one thread of its own."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

import torch

from agl.errors import AglError, CheckpointError, ConfigError, require_extra
from agl.inference.huggingface import check_policy_folder, end_token_ids, load_tokenizer, resolve_device
from agl.learners.base import ChatTokens
from agl.learners.steps import Schedule
from agl.learners.torch.batches import row_from_sample
from agl.learners.torch.checkpoints import (
    Checkpoint,
    copy_weights,
    fingerprint,
    read_checkpoint,
    write_checkpoint,
)
from agl.learners.torch.compute import Compute
from agl.learners.torch.models import (
    CriticKind,
    Models,
    load_models,
    merged_weights,
    save_hugging_face,
    save_peft,
)
from agl.learners.torch.optimizers import Optimizers, OptimizerSettings
from agl.learners.torch.packing import can_pack
from agl.learners.torch.update import (
    check_loss,
    per_token,
    row_logprobs,
    row_values,
    take_steps,
    update_metrics,
)
from agl.types.policy import Policy
from agl.types.sample import Loss, PolicyLoss, PreferenceLoss, TrainingSample, Trajectory, UpdateReport
from agl.types.weights import PolicyWeights

log = logging.getLogger(__name__)
T = TypeVar("T")
MICRO_BATCH_TOKENS = {"cpu": 1024, "cuda": 8192}
"""On CPU from benchmarks/learner.py: 8192 takes 15 % longer than 1024."""
INTERRUPTED_SECONDS = 1.0
"""How long an interrupted learner waits for its thread."""
ONE_THREAD_PARAMETERS = 20_000_000
"""Below this a second thread mostly waits: on 0.5 million, 30 % more CPU time for the same update."""


@dataclass(slots=True, kw_only=True)
class _State:
    """What entering builds and a checkpoint keeps; touched by the worker thread only."""

    models: Models
    optimizers: Optimizers
    compute: Compute
    rng: random.Random
    fits: dict[str, Any]
    vocab_size: int
    policy_version: int = 0


class TorchLearner:
    """Trains a policy with the losses of ``agl.learners.torch.losses`` and AdamW.

    Args:
        policy: the model to train; its weights are kept in float32.
        learning_rate: of the policy, and of a critic's own backbone.
        warmup_steps: optimizer steps in which the learning rate rises from 0.
        schedule: what the learning rate does then over the run; all but ``constant`` end at 0.
        weight_decay: AdamW's, of matrices.
        beta1: AdamW's decay of the mean.
        beta2: AdamW's decay of the variance.
        max_grad_norm: a longer gradient is cut to this length; policy and critic apart.
        micro_batch_tokens: most tokens, padding included, of one forward; bounds memory and changes no gradient.
            None is 1024 on CPU, where activations then stay in the cache, and 8192 on GPU.
        critic: ``head`` is a linear value head on the policy's hidden states (costs no forward, does not train them);
            ``model`` a copy of the policy with such a head, trained as a whole.
        critic_learning_rate: of the value head.
        critic_warmup_steps: first optimizer steps, in which only the critic learns.
        reference: keep the first policy for the KL term and for DPO; with LoRA it is the policy with its adapter off.
        packing: several sequences share a line of a forward without seeing each other, where the model can do so.
        gradient_checkpointing: recompute activations in the backward pass: less memory, a third more time.
        mixed_precision: ``auto`` is bfloat16 on GPU and off on CPU.
        num_threads: of torch on CPU; None is 1 for models under 20 million parameters, else torch's own choice.
        seed: of the minibatches' order, the adapter's first weights and its dropout.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        learning_rate: float = 3e-4,
        warmup_steps: int = 5,
        schedule: Schedule = "constant",
        weight_decay: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.95,
        max_grad_norm: float = 1.0,
        micro_batch_tokens: int | None = None,
        critic: CriticKind = "none",
        critic_learning_rate: float = 3e-3,
        critic_warmup_steps: int = 0,
        reference: bool = False,
        packing: bool = False,
        gradient_checkpointing: bool = False,
        mixed_precision: Literal["auto", "off", "bfloat16"] = "auto",
        num_threads: int | None = None,
        seed: int = 0,
    ) -> None:
        self._settings = OptimizerSettings(
            learning_rate=learning_rate,
            warmup_steps=warmup_steps,
            schedule=schedule,
            weight_decay=weight_decay,
            beta1=beta1,
            beta2=beta2,
            max_grad_norm=max_grad_norm,
            critic_learning_rate=critic_learning_rate,
            critic_warmup_steps=critic_warmup_steps,
        )
        for name, value in (("micro_batch_tokens", micro_batch_tokens), ("num_threads", num_threads)):
            if value is not None and value < 1:
                raise ConfigError(f"learner.{name}={value} must be at least 1")
        if critic_warmup_steps and critic == "none":
            raise ConfigError(f"learner.critic_warmup_steps={critic_warmup_steps} needs learner.critic")
        if policy.lora is not None:
            require_extra("policy.lora", "lora", "peft")
        check_policy_folder(policy)
        self._policy = policy
        self._micro_batch_tokens = micro_batch_tokens
        self._critic: CriticKind = critic
        self._reference = reference
        self._packing = packing
        self._gradient_checkpointing = gradient_checkpointing
        self._mixed_precision = mixed_precision
        self._num_threads = num_threads
        self._seed = seed
        self._closing = threading.Event()
        self._thread: ThreadPoolExecutor | None = None
        self._loaded: _State | None = None

    async def __aenter__(self) -> Self:
        self._closing.clear()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agl-learner")
        try:
            loop = asyncio.get_running_loop()
            self._loaded = await loop.run_in_executor(self._thread, self._load_models)
        except BaseException:
            self._thread.shutdown(wait=False)
            self._thread = None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        thread, self._thread, self._loaded = self._thread, None, None
        if thread is not None:
            ending = asyncio.ensure_future(asyncio.to_thread(thread.shutdown))
            # behind its micro-batch, which of a large model takes longer than Ctrl-C may
            patience = INTERRUPTED_SECONDS if isinstance(error, asyncio.CancelledError) else None
            await asyncio.wait((ending,), timeout=patience)

    @property
    def policy_version(self) -> int:
        """How many ``update`` calls have changed the weights; 0 while the learner is not open."""
        return 0 if self._loaded is None else self._loaded.policy_version

    def check(self, loss: Loss, *, needs_values: bool) -> None:
        """Refuse a loss, or the need of values, that these settings do not provide for.

        Raises:
            ConfigError: the message names the setting.
        """
        if isinstance(loss, PreferenceLoss) and not self._reference:
            raise ConfigError(
                "preferences are learned against the frozen first policy: set learner.reference=true"
            )
        if isinstance(loss, PolicyLoss) and loss.kl_coef and not self._reference:
            raise ConfigError(
                f"algorithm.kl_coef={loss.kl_coef} needs a frozen reference: set learner.reference=true"
            )
        if needs_values and self._critic == "none":
            raise ConfigError("the algorithm needs values, but learner.critic=none: set it to head or model")

    async def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return the current policy's logprob of every token, under each trajectory's temperature.

        One list a trajectory, as long as its ``token_ids``; 0.0 where ``loss_mask`` is 0.
        """
        return await self._in_thread(
            lambda state: per_token(
                trajectories,
                state.vocab_size,
                lambda rows: row_logprobs(state.models, rows, state.compute, reference=False),
            )
        )

    async def values(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return the critic's value of the state in which each token was sampled; 0.0 where ``loss_mask`` is 0.

        Raises:
            ConfigError: the learner was built without a critic.
        """
        if self._critic == "none":
            raise ConfigError("the algorithm needs values, but learner.critic=none: set it to head or model")

        def read(state: _State) -> list[list[float]]:
            return per_token(
                trajectories, state.vocab_size, lambda rows: row_values(state.models, rows, state.compute)
            )

        return await self._in_thread(read)

    async def update(self, samples: Sequence[TrainingSample], loss: Loss) -> UpdateReport:
        """Take the optimizer steps that ``loss`` asks for; no samples change nothing.

        Raises:
            ConfigError: ``loss`` needs a part that was not built.
            ValueError: a sample contradicts itself.
            AglError: loss or gradient stayed non-finite.
        """
        return await self._in_thread(lambda state: self._update(state, samples, loss))

    async def weights(self) -> PolicyWeights:
        """Return a copy of the current weights under the plain model's names, the adapter merged in."""
        return await self._in_thread(
            lambda state: PolicyWeights(
                policy_version=state.policy_version, tensors=merged_weights(state.models)
            )
        )

    async def save(self, folder: Path) -> None:
        """Write weights, optimizers, counters and random state into an empty folder, every file flushed to disk."""
        await self._in_thread(lambda state: _save(state, folder))

    async def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote, as if never stopped.

        Raises:
            CheckpointError: the folder is incomplete, damaged, or of another policy.
        """
        await self._in_thread(lambda state: _restore(state, folder))

    async def save_policy(self, folder: Path) -> None:
        """Write the policy as an ordinary Hugging Face folder with its tokenizer; the adapter merged in."""
        await self._in_thread(lambda state: save_hugging_face(state.models, self._policy, folder))

    async def save_adapter(self, folder: Path) -> None:
        """Write the LoRA adapter in PEFT's form, with the tokenizer."""
        if self._policy.lora is None:
            raise ConfigError(f"policy {self._policy.path} has no LoRA adapter: take all its weights")
        await self._in_thread(lambda state: save_peft(state.models, self._policy, folder))

    async def chat_tokens(self) -> ChatTokens:
        """Return the policy's tokenizer, with its chat template, and the tokens that end an answer."""
        return await self._in_thread(lambda state: _chat_tokens(self._policy, state.models))

    @property
    def _state(self) -> _State:
        if self._loaded is None:
            raise AglError("the learner is not open; use it inside 'async with learner:'")
        return self._loaded

    async def _in_thread(self, work: Callable[[_State], T]) -> T:
        state = self._state
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(state))

    def _load_models(self) -> _State:
        device = resolve_device(self._policy)
        models = load_models(
            self._policy,
            critic=self._critic,
            reference=self._reference,
            gradient_checkpointing=self._gradient_checkpointing,
            device=device,
            seed=self._seed,
        )
        small = sum(parameter.numel() for parameter in models.policy.parameters()) < ONE_THREAD_PARAMETERS
        if self._num_threads is not None or small:
            torch.set_num_threads(self._num_threads or 1)
        vocab_size = models.policy.get_input_embeddings().weight.shape[0]
        packed = self._packing and can_pack(models.policy, vocab_size=vocab_size, device=device)
        if self._packing and not packed:
            log.warning("this model cannot pack sequences: they run in micro-batches of like length")
        critic = models.critic
        backbone = None if critic is None else critic.backbone
        return _State(
            models=models,
            optimizers=Optimizers(
                models.trainable_policy().values(),
                [] if critic is None else critic.head.parameters(),
                [] if backbone is None else (p for p in backbone.parameters() if p.requires_grad),
                self._settings,
            ),
            compute=Compute(
                device=device,
                micro_batch_tokens=self._micro_batch_tokens or MICRO_BATCH_TOKENS[device.type],
                bfloat16=self._bfloat16(device),
                stopped=self._closing.is_set,
                packed=packed,
            ),
            rng=random.Random(self._seed),
            fits=fingerprint(models.policy.config, lora=self._policy.lora, critic=self._critic),
            vocab_size=vocab_size,
        )

    def _bfloat16(self, device: torch.device) -> bool:
        if self._mixed_precision == "bfloat16" and device.type == "cpu":
            raise ConfigError(
                "learner.mixed_precision=bfloat16 is for GPUs (on most CPUs it is many times slower); use auto"
            )
        return self._mixed_precision != "off" and device.type != "cpu"

    def _update(self, state: _State, samples: Sequence[TrainingSample], loss: Loss) -> UpdateReport:
        begun = time.perf_counter()
        found = [row_from_sample(sample, vocab_size=state.vocab_size) for sample in samples]
        rows = [row for row in found if row is not None]
        check_loss(state.models, rows, loss)
        metrics = {
            "sequences": float(len(rows)),
            "sampled_tokens": float(sum(row.num_sampled for row in rows)),
            "tokens": float(sum(len(row.ids_T) for row in rows)),
        }
        steps = 0
        if rows:
            with self._own_randomness(state):
                tally = take_steps(
                    state.models, state.optimizers, rows, loss, compute=state.compute, rng=state.rng
                )
            steps = sum(outcome.taken for outcome in tally.outcomes)
            state.policy_version += tally.policy_steps > 0
            metrics |= update_metrics(tally)
        metrics["seconds"] = time.perf_counter() - begun
        return UpdateReport(optimizer_steps=steps, policy_version=state.policy_version, metrics=metrics)

    @contextmanager
    def _own_randomness(self, state: _State) -> Generator[None]:
        """Let dropout, where there is any, draw from the learner's seed and leave the process's generator alone."""
        lora = self._policy.lora
        if lora is None or not lora.dropout:
            yield
            return
        devices = [state.compute.device] if state.compute.device.type == "cuda" else []
        with cast("Any", torch.random).fork_rng(devices=devices):
            cast("Any", torch).manual_seed(state.rng.getrandbits(63))
            yield


def _chat_tokens(policy: Policy, models: Models) -> ChatTokens:
    tokenizer = load_tokenizer(policy)
    ends = end_token_ids(tokenizer, models.policy.generation_config)
    return ChatTokens(tokenizer=tokenizer, end_ids=ends)


def _save(state: _State, folder: Path) -> None:
    write_checkpoint(
        folder,
        Checkpoint(
            policy=state.models.trainable_policy(),
            critic=state.models.trainable_critic(),
            optimizers=state.optimizers.state(),
            counters={"policy_version": state.policy_version, "random": state.rng.getstate()},
        ),
        state.fits,
    )


def _restore(state: _State, folder: Path) -> None:
    saved = read_checkpoint(folder, state.fits)
    copy_weights(saved.policy, state.models.trainable_policy(), what="policy")
    copy_weights(saved.critic, state.models.trainable_critic(), what="critic")
    try:
        state.optimizers.restore(saved.optimizers)
        version, numbers, gauss = saved.counters["random"]
        state.rng.setstate((version, tuple(numbers), gauss))
        state.policy_version = int(saved.counters["policy_version"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder} does not fit this learner: {error!r}") from error
