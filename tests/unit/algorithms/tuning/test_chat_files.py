"""Files of conversations become examples in the policy's tokens; what cannot is counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from chat_learner import ChatLearner
from chat_tokens import chat_tokens, masked_texts
from sampled_batches import ConstantCritic

from agl.algorithms.tuning.chat_files import examples_of_files
from agl.errors import ConfigError


def chat(question: str, answer: str) -> str:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": messages})


async def test_every_conversation_is_an_example_or_counted(tmp_path: Path) -> None:
    image = {
        "messages": [{"role": "user", "content": [{"type": "image"}]}, {"role": "assistant", "content": "x"}]
    }
    lines = [chat("1+1?", "2"), json.dumps(image), chat("1+1?", "Two."), chat("long" * 100, "x")]
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(lines))
    examples, refused = await examples_of_files([str(file)], ChatLearner(), max_tokens=100)
    assert [one.example_id for one in examples] == [f"{file}:1", f"{file}:3"]
    assert [masked_texts(one.trajectories[0], chat_tokens()) for one in examples] == [
        ["2<|im_end|>"],
        ["Two.<|im_end|>"],
    ]
    assert examples[0].task == examples[1].task  # they answer the same
    assert examples[0].reward is None
    assert refused == Counter(unreadable_messages=1, too_long=1)


async def test_a_learner_that_makes_no_tokens_is_refused_only_where_there_are_files(tmp_path: Path) -> None:
    assert await examples_of_files([], ConstantCritic()) == ([], Counter())
    with pytest.raises(ConfigError, match="files needs a learner that knows the policy's chat template"):
        await examples_of_files([str(tmp_path / "x.jsonl")], ConstantCritic())
