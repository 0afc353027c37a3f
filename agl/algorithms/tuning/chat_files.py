"""Examples out of files of conversations, in the tokens of the policy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from agl.adapters.conversations import Conversation, conversations_from_file
from agl.algorithms.tuning.encoding import trajectories_of
from agl.algorithms.tuning.examples import Example, task_text
from agl.algorithms.tuning.past_runs import chat_tokens_of, within
from agl.learners.base import ChatTokens, Learner


async def examples_of_files(
    files: Sequence[str], learner: Learner, *, max_tokens: int | None = None
) -> tuple[list[Example], Counter[str]]:
    """Return the conversations that the policy can learn from, and how many it cannot, by cause.

    Raises:
        ConfigError: a file is at fault, naming its line, or the learner cannot make tokens.
    """
    if not files:
        return [], Counter()
    chat = await chat_tokens_of(learner, "files")
    return await asyncio.to_thread(_read, files, chat, max_tokens)


def _read(
    files: Sequence[str], chat: ChatTokens, max_tokens: int | None
) -> tuple[list[Example], Counter[str]]:
    examples: list[Example] = []
    refused: Counter[str] = Counter()
    for file in files:
        for conversation in conversations_from_file(Path(file)):
            found = trajectories_of([conversation], chat)
            kept = found if isinstance(found, str) else within(found, max_tokens)
            if isinstance(kept, str):
                refused[kept] += 1
                continue
            examples.append(
                Example(
                    example_id=conversation.name,
                    group_id=conversation.name,
                    task=_asked(conversation),
                    reward=None,
                    trajectories=kept,
                )
            )
    return examples, refused


def _asked(conversation: Conversation) -> str:
    """What stands before the first answer, which makes two conversations ones about the same task."""
    first = next(at for at, one in enumerate(conversation.messages) if one["role"] == "assistant")
    return task_text([dict(message) for message in conversation.messages[:first]])
