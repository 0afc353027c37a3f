"""The text of an answer while it is being sampled: only what no later token can take back.

Held back are the bytes of unfinished characters, what may be the beginning of a stop string, and, where tools were
offered, what may belong to a tool call. Put together, the pieces are the text of the whole answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agl.inference.answer import cut_at_stop
from agl.inference.tools import CALL_TAG

_BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
_WINDOW = 16
"""Tokens decoded again with each new one before the window moves on."""


@dataclass(frozen=True, slots=True)
class TokenJoints:
    """Where the text of a tokenizer's ids can be cut.

    Args:
        tokenizer: of the transformers library.
    """

    tokenizer: Any
    appends: bool = field(init=False)
    """Whether the text of more ids begins with the text of fewer: not where spaces are cleaned up afterwards."""
    open_ids: frozenset[int] = field(init=False)
    """Behind these the text is not settled: of a run of single bytes that is no UTF-8, every byte becomes a mark."""

    def __post_init__(self) -> None:
        tokenizer = self.tokenizer
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        kinds = b"" if decoder is None else bytes(decoder.__getstate__())
        rewrites = (
            bool(tokenizer.clean_up_tokenization_spaces) or b'"WordPiece"' in kinds or b'"CTC"' in kinds
        )
        open_ids: set[int] = set()
        if b'"ByteFallback"' in kinds:
            open_ids = {
                token_id for token, token_id in tokenizer.get_vocab().items() if _BYTE_TOKEN.fullmatch(token)
            }
            open_ids |= {
                token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special
            }
        object.__setattr__(self, "appends", not rewrites)
        object.__setattr__(self, "open_ids", frozenset(open_ids))


class SettledText:
    """Decodes ids as they come, each with a few of its neighbours, however long the answer."""

    def __init__(self, joints: TokenJoints) -> None:
        self._joints = joints
        self._ids: list[int] = []
        # The window's beginning, a later place where it may begin, and its settled end, with the text up to there.
        self._start = self._middle = self._settled = 0
        self._before = ""

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text that these further ids settle."""
        ids = self._ids
        ids.extend(token_ids)
        if not self._joints.appends or not ids or ids[-1] in self._joints.open_ids:
            return ""
        # A replacement character may be the first bytes of one that is not finished yet.
        if len(ids) - self._start > 2 * _WINDOW and self._decoded(len(ids) - _WINDOW).endswith("\ufffd"):
            return ""
        text = self._decoded(self._start)
        if text.endswith("\ufffd") or not text.startswith(self._before):
            return ""
        piece = text[len(self._before) :]
        self._settled, self._before = len(ids), text
        self._move()
        return piece

    def _move(self) -> None:
        """Let go of the window's older half when it is long; it begins and ends between whole characters."""
        size = self._settled - self._start
        if self._middle == self._start:
            if size >= _WINDOW // 2:
                self._middle = self._settled
        elif size > _WINDOW:
            before = self._decoded(self._middle)
            if before:  # else special tokens only, behind which a tokenizer may leave out a space
                self._start, self._before = self._middle, before

    def _decoded(self, start: int) -> str:
        return self._joints.tokenizer.decode(self._ids[start:], skip_special_tokens=True)


class TextStream:
    """The text of one choice, piece by piece.

    Args:
        joints: of the policy's tokenizer.
        stop: the request's stop strings.
        with_tools: whether tools were offered, so that a tool call ends the text.
    """

    def __init__(self, joints: TokenJoints, *, stop: Sequence[str], with_tools: bool) -> None:
        self._text = SettledText(joints)
        self._stop = stop
        self._with_tools = with_tools
        self._pending = ""
        self._given: list[str] = []

    def push(self, token_ids: Sequence[int]) -> str:
        """Return the text that can be shown now that these further ids were sampled."""
        pending = self._pending + self._text.push(token_ids)
        size = _size_before_stop(pending, self._stop)
        if self._with_tools:
            size = min(size, _size_before_call(pending))
        piece, self._pending = pending[:size], pending[size:]
        self._given.append(piece)
        return piece

    def rest(self, whole: str) -> str | None:
        """Return what is left of the answer's text; None when the pieces given do not begin it."""
        given = "".join(self._given)
        return whole[len(given) :] if whole.startswith(given) else None


def _size_before_stop(text: str, stop: Sequence[str]) -> int:
    """Return how much of the text lies before a stop string, or before what may be the beginning of one at its end."""
    if not stop:
        return len(text)
    cut = cut_at_stop(text, stop)
    if cut is not None:
        return len(cut)
    return len(text) - max(_overlap(text, string) for string in stop)


def _size_before_call(text: str) -> int:
    """Return how much of the text no tool call will take away: not its tag, nor the space before that."""
    place = text.find(CALL_TAG)
    before = text[:place] if place >= 0 else text[: len(text) - _overlap(text, CALL_TAG)]
    return len(before.rstrip())


def _overlap(text: str, string: str) -> int:
    """Return the length of the longest end of the text that begins the string and is not all of it."""
    longest = min(len(text), len(string) - 1)
    return next((size for size in range(longest, 0, -1) if string.startswith(text[-size:])), 0)
