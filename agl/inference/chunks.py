"""Write a streamed answer: each step's new ids and logprobs with the text they settle, in OpenAI's chunks.

Put together, the chunks are the answer that ``answer.chat_completion`` writes of the same rows. A tool call comes whole
with its choice's last chunk: until the answer has ended, a broken one may still turn all of them back into text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

from agl.errors import InferenceError
from agl.inference.answer import SampledAnswer, TokenTexts, logprobs_of, message_of_choice, usage_of
from agl.inference.chat import ChatRequest
from agl.inference.text_stream import TextStream, TokenJoints


class StreamedAnswer(SampledAnswer, Protocol):
    """An answer under way, or one that has ended."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """As the engine saw them."""
        ...


class ChunkStream:
    """The chunks of one call, whose rows another thread may be sampling.

    Args:
        request: what was asked for.
        rows: one a choice.
        model: the name of the policy.
        texts: with the policy's tokenizer.
        joints: of the same tokenizer.
        created: seconds since 1970.
        new_id: gives a new unique string of letters and digits.
    """

    def __init__(
        self,
        request: ChatRequest,
        rows: Sequence[StreamedAnswer],
        *,
        model: str,
        texts: TokenTexts,
        joints: TokenJoints,
        created: int,
        new_id: Callable[[], str],
    ) -> None:
        self._request = request
        self._rows = rows
        self._texts = texts
        self._new_id = new_id
        self._shared = {
            "id": f"chatcmpl-{new_id()}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        with_tools = request.tools is not None
        self._streams = [TextStream(joints, stop=request.stop, with_tools=with_tools) for _ in rows]
        self._num_shown = [0] * len(rows)
        self._unfinished = set(range(len(rows)))
        self._prompt: dict[str, Any] = {"prompt_token_ids": list(rows[0].prompt_ids)}

    @property
    def finished(self) -> bool:
        """Whether the last chunk of every choice was written."""
        return not self._unfinished

    def new_chunks(self, policy_version: int | None) -> Iterator[dict[str, Any]]:
        """Yield a chunk for each choice that went on since the last time.

        Raises:
            InferenceError: 500, the policy's tokenizer rewrites text that was shown already.
        """
        for index in sorted(self._unfinished):
            row = self._rows[index]
            reason = row.finish_reason  # before the count: once it is there, no more is sampled
            first, last = self._num_shown[index], len(row.logprobs)
            if reason == "error" or (last == first and reason is None):
                continue
            self._num_shown[index] = last
            delta: dict[str, Any] = {"role": "assistant", "refusal": None} if first == 0 else {}
            if reason is None:
                text = self._streams[index].push(row.token_ids[first:last])
                if text:
                    delta["content"] = text
            else:
                self._unfinished.remove(index)
                reason = self._end(index, delta)
            yield self._chunk(index, slice(first, last), delta, reason, policy_version)

    def usage_chunk(self, policy_version: int | None) -> dict[str, Any]:
        """Return the last chunk."""
        usage = usage_of(self._rows[0].prompt_ids, self._rows)
        return {**self._shared, "choices": [], "usage": usage, "policy_version": policy_version}

    def _end(self, index: int, delta: dict[str, Any]) -> str | None:
        """Put what is left of a choice's message into its last delta; return the finish reason."""
        message, reason = message_of_choice(
            self._request, self._rows[index], self._texts.tokenizer, self._new_id
        )
        text = self._streams[index].rest(message["content"] or "")
        if text is None:
            raise InferenceError(
                "the text of this policy's tokenizer cannot be streamed: later tokens change what was shown; "
                "ask with stream: false",
                status=500,
            )
        if text:
            delta["content"] = text
        if "tool_calls" in message:
            calls = cast("list[dict[str, Any]]", message["tool_calls"])
            delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(calls)]
        return reason

    def _chunk(
        self, index: int, new: slice, delta: dict[str, Any], reason: str | None, policy_version: int | None
    ) -> dict[str, Any]:
        row = self._rows[index]
        token_ids = list(row.token_ids[new])
        choice = {
            "index": index,
            "delta": delta,
            "finish_reason": reason,
            "logprobs": logprobs_of(self._request, token_ids, row.logprobs[new], self._texts),
            "token_ids": token_ids,
        }
        prompt, self._prompt = self._prompt, {}
        return {**self._shared, "choices": [choice], **prompt, "policy_version": policy_version}
