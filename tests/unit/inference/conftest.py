"""A policy folder small enough to sample from in a unit test: 2 layers of 32, byte-level BPE, a ChatML template."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agl.types.policy import Policy

sys.path.insert(0, str(Path(__file__).parent))  # scripted_batch, for the tests beside this file

TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n"
    "<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|im_end|>\n"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'robot' %}{{ raise_exception('no robots') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>{{ '\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{%- if hint is defined %}{{ hint }}{% endif %}"
)


def write_policy(folder: Path, *, seed: int = 0, tied: bool = True, **settings: object) -> Path:
    torch.manual_seed(seed)
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(["SELECT name FROM employees", "system user assistant"], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
        initializer_range=0.4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **settings,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="session")
def policy(policy_folder: Path) -> Policy:
    return Policy(path=str(policy_folder), device="cpu")
