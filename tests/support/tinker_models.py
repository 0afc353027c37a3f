"""What the machines behind the fake Tinker service compute: real adapters, losses, gradients and samples, by torch.

Written from the service's documentation, independently of agl's own learner.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForCausalLM

LAYERS = {
    "train_attn": ["q_proj", "k_proj", "v_proj", "o_proj"],
    "train_mlp": ["gate_proj", "up_proj", "down_proj"],
    "train_unembed": ["lm_head"],
}


@dataclass(frozen=True)
class Example:
    """One datum, decoded."""

    tokens: Sequence[int]
    inputs: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Sampled:
    """One sampled sequence."""

    tokens: list[int]
    logprobs: list[float]
    stop_reason: str


class TrainedModel:
    """A base model with an adapter and its optimizer."""

    def __init__(self, base_model: str, lora: Mapping[str, Any]) -> None:
        self.base_model, self.lora = base_model, dict(lora)
        base = AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32)
        names = [name for flag, layers in LAYERS.items() if lora.get(flag, True) for name in layers]
        settings = LoraConfig(r=lora["rank"], lora_alpha=32, target_modules=names, lora_dropout=0.0)
        with torch.random.fork_rng():
            torch.manual_seed(lora.get("seed") or 0)
            self.model: Any = get_peft_model(base, settings)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, eps=1e-12)
        self.num_gradients = 0

    def forward_backward(
        self, data: Sequence[Example], loss_fn: str, config: Mapping[str, float], *, forward_only: bool
    ) -> tuple[list[list[float]], float]:
        """Return each target's logprob and the summed loss, whose gradient is added up unless told otherwise."""
        total, lines = 0.0, []
        for example in data:
            with torch.set_grad_enabled(not forward_only):
                ids = torch.tensor([list(example.tokens)])
                targets = torch.tensor(list(example.inputs["target_tokens"]), dtype=torch.long)
                logits = self.model(input_ids=ids).logits[0].float()
                logprobs = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]
                loss = loss_of(loss_fn, logprobs, example.inputs, config)
            if not forward_only:
                loss.backward()
                self.num_gradients += 1
            total += float(loss.detach())
            lines.append(logprobs.detach().tolist())
        return lines, total

    def optim_step(self, adam: Mapping[str, float]) -> dict[str, float]:
        """Take one step of AdamW along the gradient, and forget it."""
        for group in self.optimizer.param_groups:
            group.update(
                lr=adam["learning_rate"],
                betas=(adam["beta1"], adam["beta2"]),
                eps=adam["eps"],
                weight_decay=adam["weight_decay"],
            )
        longest = adam["grad_clip_norm"] or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, longest))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"unclipped_grad_l2:mean": norm}

    def state(self) -> bytes:
        """Return adapter and optimizer as one file."""
        file = io.BytesIO()
        adapter = {name: tensor.clone() for name, tensor in get_peft_model_state_dict(self.model).items()}
        torch.save({"adapter": adapter, "optimizer": self.optimizer.state_dict()}, file)
        return file.getvalue()

    def restore(self, state: bytes) -> None:
        """Go on from a state."""
        saved = torch.load(io.BytesIO(state), weights_only=False)
        set_peft_model_state_dict(self.model, saved["adapter"])
        self.optimizer.load_state_dict(saved["optimizer"])

    def sampler(self) -> SampledModel:
        """Return a copy of the present weights that answers calls."""
        return SampledModel(copy.deepcopy(self.model).merge_and_unload(), self.base_model)

    def export(self, folder: Path) -> dict[str, Path]:
        """Write the adapter as peft writes it; return its files by name."""
        self.model.save_pretrained(folder)
        return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def loss_of(
    name: str, logprobs: torch.Tensor, inputs: Mapping[str, Sequence[float]], config: Mapping[str, float]
) -> torch.Tensor:
    """Return the loss of one datum, summed over its tokens, as the service documents it."""

    def column(key: str) -> torch.Tensor:
        return torch.tensor(list(inputs[key]), dtype=torch.float32)

    if name == "cross_entropy":
        assert set(inputs) == {"target_tokens", "weights"}, sorted(inputs)
        return -(logprobs * column("weights")).sum()
    assert set(inputs) == {"target_tokens", "logprobs", "advantages"}, sorted(inputs)
    ratio = torch.exp(logprobs - column("logprobs"))
    if name == "importance_sampling":
        return -(ratio * column("advantages")).sum()
    assert name == "ppo", name
    clipped = ratio.clamp(config.get("clip_low_threshold", 0.8), config.get("clip_high_threshold", 1.2))
    return -torch.minimum(ratio * column("advantages"), clipped * column("advantages")).sum()


class SampledModel:
    """Weights that answer calls and change no more."""

    def __init__(self, model: Any, base_model: str) -> None:
        self.model, self.base_model = model.eval(), base_model

    @classmethod
    def of_base(cls, base_model: str) -> SampledModel:
        """The base model without an adapter."""
        return cls(AutoModelForCausalLM.from_pretrained(base_model, dtype=torch.float32), base_model)

    @torch.inference_mode()
    def sample(self, prompt: Sequence[int], count: int, params: Mapping[str, Any]) -> list[Sampled]:
        """Sample ``count`` answers; their logprobs are the model's own, before temperature and cuts."""
        stops = params.get("stop") or []
        ends = [stop for stop in stops if isinstance(stop, int)]
        temperature = params.get("temperature", 1.0)
        with torch.random.fork_rng():
            torch.manual_seed(params.get("seed") or 0)
            out = self.model.generate(
                torch.tensor([list(prompt)]),
                attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
                num_return_sequences=count,
                max_new_tokens=params["max_tokens"],
                do_sample=temperature > 0,
                temperature=temperature or None,
                top_k=max(params.get("top_k", -1), 0),
                top_p=params.get("top_p", 1.0),
                eos_token_id=ends or None,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        logprobs = torch.stack(out.logits, dim=1).float().log_softmax(-1)
        answers = out.sequences[:, len(prompt) :]
        chosen = logprobs.gather(2, answers[:, :, None])[:, :, 0]
        return [_ended(ids, line, ends) for ids, line in zip(answers.tolist(), chosen.tolist(), strict=True)]


def _ended(tokens: list[int], logprobs: list[float], ends: Sequence[int]) -> Sampled:
    for size, token in enumerate(tokens, 1):
        if token in ends:
            return Sampled(tokens[:size], logprobs[:size], "stop")
    return Sampled(tokens, logprobs, "length")
