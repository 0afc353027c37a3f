"""A folder with a tokenizer."""

from __future__ import annotations

import pytest
from tiny_policies import word_tokenizer

from agl.types.policy import Policy


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("tokenizer")
    words = ["<pad>", "<s>", "</s>", "yes"]
    word_tokenizer(
        "{% for message in messages %}{{ message.content }} {% endfor %}", words=words
    ).save_pretrained(folder)
    return Policy(path=str(folder))
