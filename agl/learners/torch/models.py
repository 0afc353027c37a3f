"""The trained policy and what stands beside it: adapter, critic, reference; and the one forward of all.

Shape suffixes: B sequences, T positions, N sampled tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from agl.errors import ConfigError
from agl.inference.huggingface import load_model, load_tokenizer, without_progress_bar
from agl.types.policy import Lora, Policy

CriticKind = Literal["none", "head", "model"]
ReferenceKind = Literal["none", "copy", "adapter_off"]


class Critic(nn.Module):
    """A value head on the policy's last hidden states, or on those of a backbone of its own.

    The head starts at 0, so that first advantages are the returns themselves and not noise.
    """

    def __init__(self, hidden_size: int, backbone: Any | None) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(hidden_size, 1, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, hidden_NH: Tensor) -> Tensor:
        """Return the value of each state, in float32."""
        return self.head(hidden_NH.float())[:, 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What one learner holds.

    Args:
        policy: a transformers causal language model; with LoRA, its layers carry the low-rank matrices.
        adapter: peft's handle on these matrices, or None.
        critic: or None.
        reference: the frozen model of the KL term; None when it is ``policy`` with its adapter off, or not
            wanted.
        reference_kind: where the reference's logprobs come from.
    """

    policy: Any
    adapter: Any | None
    critic: Critic | None
    reference: Any | None
    reference_kind: ReferenceKind

    @contextmanager
    def as_reference(self) -> Generator[Any]:
        """Yield the frozen model of the KL term."""
        if self.reference_kind == "adapter_off":
            with cast("Any", self.adapter).disable_adapter():
                yield self.policy
        else:
            assert self.reference is not None
            yield self.reference

    @contextmanager
    def without_dropout(self) -> Generator[None]:
        """Switch the adapter's dropout off, the only one there is."""
        self.policy.eval()
        try:
            yield
        finally:
            self.policy.train()

    def trainable_policy(self) -> dict[str, nn.Parameter]:
        """Return the policy's trained parameters by name, tied ones once."""
        return {name: p for name, p in self.policy.named_parameters() if p.requires_grad}

    def trainable_critic(self) -> dict[str, nn.Parameter]:
        """Return the critic's trained parameters by name."""
        if self.critic is None:
            return {}
        return {name: p for name, p in self.critic.named_parameters() if p.requires_grad}


def load_models(
    policy: Policy,
    *,
    critic: CriticKind,
    reference: bool,
    gradient_checkpointing: bool,
    device: torch.device,
    seed: int,
) -> Models:
    """Return the models in float32 on the device; ``seed`` decides the adapter's first weights."""
    with cast("Any", torch.random).fork_rng(devices=[]):
        cast("Any", torch).manual_seed(seed)
        model = _trained_model(policy, device, gradient_checkpointing=gradient_checkpointing)
        frozen = (
            copy.deepcopy(model).requires_grad_(requires_grad=False)
            if reference and policy.lora is None
            else None
        )
        adapter = None if policy.lora is None else _with_lora(model, policy.lora)
        value_model = None
        if critic != "none":
            backbone = None
            if critic == "model":
                backbone = _trained_model(policy, device, gradient_checkpointing=gradient_checkpointing)
                _freeze_output_layer(backbone)
            hidden_size = model.get_output_embeddings().weight.shape[1]
            value_model = Critic(hidden_size, backbone).to(device)
    kind: ReferenceKind = "none" if not reference else "copy" if adapter is None else "adapter_off"
    return Models(policy=model, adapter=adapter, critic=value_model, reference=frozen, reference_kind=kind)


def hidden_and_logits(
    model: Any,
    ids_BT: Tensor,
    rows_N: Tensor,
    *,
    positions_BT: Tensor | None = None,
    logits: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return hidden_NH, the output layer's input at ``rows_N`` of the flattened batch, and its logits_NV.

    The output layer is the largest matrix product of a small model and its result the largest tensor of any,
    so it sees only the positions that are asked for (none with ``logits=False``). They are picked at the
    layer's door because what a model does to its logits behind it (scaling, soft caps) then stays the model's
    own business. ``positions_BT`` begins anew with each of several sequences in a line, which then see nothing of
    each other (transformers makes the mask of it).
    """
    hidden: list[Tensor] = []

    def pick(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        hidden_NH = inputs[0].flatten(0, 1).index_select(0, rows_N)
        hidden.append(hidden_NH)
        return ((hidden_NH if logits else hidden_NH[:0])[None],)

    hook = model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        positions = {} if positions_BT is None else {"position_ids": positions_BT}
        output = model(input_ids=ids_BT, use_cache=False, **positions)
    finally:
        hook.remove()
    return hidden[0], output.logits[0]


def merged_weights(models: Models) -> dict[str, Tensor]:
    """Return a copy of the policy's state dict under the names of the plain model, the adapter merged in.

    Tied entries share one copy. The trained model is not changed.
    """
    deltas = dict(_lora_layers(models.policy)) if models.adapter else {}
    copies: dict[tuple[int, torch.Size], Tensor] = {}
    merged: dict[str, Tensor] = {}
    for name, tensor in _plain_state(models.policy, deltas):
        storage = (tensor.data_ptr(), tensor.shape)
        if storage not in copies:
            copies[storage] = tensor.detach().clone()
        merged[name] = copies[storage]
    with torch.no_grad():
        for prefix, layer in deltas.items():
            merged[f"{prefix}.weight"] += layer.get_delta_weight("default")
    return merged


def save_hugging_face(models: Models, policy: Policy, folder: Path) -> None:
    """Write model, generation settings, tokenizer and chat template so that plain transformers loads them."""
    model = models.policy
    if models.adapter is not None:
        with torch.device("meta"):
            plain = type(model)(model.config)
        plain.load_state_dict(merged_weights(models), assign=True)
        plain.tie_weights()
        plain.generation_config = model.generation_config
        model = plain
    with without_progress_bar():
        model.save_pretrained(folder)
    load_tokenizer(policy).save_pretrained(folder)


def save_peft(models: Models, policy: Policy, folder: Path) -> None:
    """Write the adapter alone, which names its base as ``policy.path``, with tokenizer and chat template."""
    adapter = cast("Any", models.adapter)
    adapter.peft_config["default"].base_model_name_or_path = policy.path
    adapter.save_pretrained(folder)
    load_tokenizer(policy).save_pretrained(folder)


def _trained_model(policy: Policy, device: torch.device, *, gradient_checkpointing: bool) -> Any:
    """Return the policy in float32 and training mode, dropout off, as the engine samples without."""
    model = load_model(policy, dtype=torch.float32, device=device)
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            cast("Any", module).p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            cast("Any", module).attention_dropout = 0.0
    if gradient_checkpointing:
        _recompute_activations(model)
    return model.train()


def _recompute_activations(model: Any) -> None:
    settings = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=settings)
    else:  # transformers before 5.24; remove with support for it
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


def _with_lora(model: Any, lora: Lora) -> Any:
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    targets = lora.target_modules
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=cast("int", lora.alpha),
        lora_dropout=lora.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            # Of transformers 5.24 about a name that peft 0.21 still uses; remove when peft does not.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
            adapter = get_peft_model(model, config)
    except ValueError as error:
        raise ConfigError(f"policy.lora.target_modules={targets!r}: {error}") from error
    embeddings = (model.get_input_embeddings(), model.get_output_embeddings())
    if model.config.tie_word_embeddings and any(isinstance(layer, BaseTunerLayer) for layer in embeddings):
        raise ConfigError(
            f"policy.lora.target_modules={targets!r} adapts a tied embedding, which cannot be merged; "
            "leave the embedding and output layers out"
        )
    return adapter.train()


def _freeze_output_layer(backbone: Any) -> None:
    """Keep the output layer, which gives no value, out of training unless it is the embedding, too."""
    if not backbone.config.tie_word_embeddings:
        backbone.get_output_embeddings().requires_grad_(requires_grad=False)


def _lora_layers(model: Any) -> Iterator[tuple[str, Any]]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer):
            yield name, module


def _plain_state(model: Any, lora_layers: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield the state dict's entries without the low-rank matrices, under the names they have without LoRA."""
    for name, tensor in model.state_dict().items():
        prefix = next((prefix for prefix in lora_layers if name.startswith(f"{prefix}.")), None)
        if prefix is None:
            yield name, tensor
        elif name.startswith(f"{prefix}.base_layer."):
            yield f"{prefix}.{name.removeprefix(f'{prefix}.base_layer.')}", tensor
