"""Which policy is trained and served: the settings that learner and engine must agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adaptation (arXiv:2106.09685): train small matrices beside frozen weights."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A causal language model to train.

    Args:
        path: a Hugging Face folder or name, with tokenizer and chat template.
        name: the model name that agents ask for.
        dtype: of the weights served; ``auto`` is float32 on CPU and bfloat16 on GPU. The learner keeps float32.
        max_length: longest sequence in tokens, prompt and answer; None is what the model's configuration says.
        chat_template: a file with a Jinja chat template, instead of the tokenizer's own.
        lora: train low-rank matrices only; None trains all weights.
        trust_remote_code: run model code that the folder brings along.
    """

    path: str
    name: str = "policy"
    dtype: DType = "auto"
    device: Device = "auto"
    max_length: int | None = None
    chat_template: str | None = None
    lora: Lora | None = None
    trust_remote_code: bool = False
