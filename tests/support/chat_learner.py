"""A learner that counts updates and can make tokens of chats."""

from __future__ import annotations

from chat_tokens import chat_tokens
from sampled_batches import ConstantCritic

from agl.learners.base import ChatTokens


class ChatLearner(ConstantCritic):
    """Writes by characters, in ChatML."""

    async def chat_tokens(self) -> ChatTokens:
        return chat_tokens()
