"""A policy folder small enough to sample from in a unit test: 2 layers of 32, byte-level BPE, a ChatML template."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tiny_policies import byte_tokenizer, write_llama

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


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["SELECT name FROM employees", "system user assistant"]
    return write_llama(
        tmp_path_factory.mktemp("policy"),
        byte_tokenizer(TEMPLATE, vocabulary=300, texts=texts),
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.4,
    )


@pytest.fixture(scope="session")
def policy(policy_folder: Path) -> Policy:
    return Policy(path=str(policy_folder), device="cpu")
