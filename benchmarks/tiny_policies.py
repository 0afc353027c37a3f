"""The policy that the benchmarks of engine and learner serve and train."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agl.types.policy import Policy

TEMPLATE = (
    "{% for message in messages %}<start> {{ message.role }} {{ message.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<start> assistant {% endif %}"
)


def make_policy(folder: Path, vocabulary: int) -> Policy:
    """Write a 2 x 128 Llama whose tokens are words, so that text and ids say the same (0.5 M at 800 words)."""
    words = ["<pad>", "<start>", "<end>", "user", "assistant"]
    words += [f"w{index}" for index in range(len(words), vocabulary)]
    raw = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="<pad>"))
    raw.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>", additional_special_tokens=["<start>"]
    )
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Policy(path=str(folder), device="cpu")
