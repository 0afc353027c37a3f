"""Policies small enough for tests: Llama folders of a few kilobytes with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def byte_tokenizer(template: str, *, vocabulary: int, texts: Sequence[str]) -> Any:
    """Byte-level BPE, learnt from the texts, with ChatML's tokens: whatever is written survives."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    return _with_template(raw, template, pad="<pad>", end="<|im_end|>")


def word_tokenizer(template: str, *, words: Sequence[str]) -> Any:
    """A token a word, the id its place in ``words``; the first is the padding, the third the end."""
    raw = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token=words[0]))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _with_template(raw, template, pad=words[0], end=words[2])


def _with_template(raw: Tokenizer, template: str, *, pad: str, end: str) -> Any:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token=pad, eos_token=end)
    tokenizer.chat_template = template
    return tokenizer


def write_llama(folder: Path, tokenizer: Any, **settings: Any) -> Path:
    """Write a policy folder: a Llama 32 wide, of the tokenizer's vocabulary, with 0, 1, 2 as pad, begin and end.

    The weights are the same each time, and torch's own random numbers are left as they were.

    Args:
        folder: to write to.
        tokenizer: to write beside the model.
        settings: of ``LlamaConfig``.
    """
    shape = {"hidden_size": 32, "num_key_value_heads": 2, "tie_word_embeddings": True}
    config = LlamaConfig(
        vocab_size=len(tokenizer), pad_token_id=0, bos_token_id=1, eos_token_id=2, **(shape | settings)
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
