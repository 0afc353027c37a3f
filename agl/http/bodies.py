"""Body: what comes of one streamed answer, handed to its reader piece by piece; a slow reader holds the server up."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

PAUSE_BYTES = 256 * 1024
"""With so much unread, no more is taken from the connection."""
MAX_PIECE_BYTES = 64 * 1024 * 1024
"""That a piece of a packed stream may say: more is a trick."""
_GZIP_OR_ZLIB = 47  # zlib's wbits for a body packed as either
_PACKED = (b"gzip", b"x-gzip", b"deflate")


class PackingError(Exception):
    """A body is packed in a way that was not asked for, or broken."""


class Unpacking:
    """Unpacks a body piece by piece.

    Args:
        encoding: the body's ``content-encoding``.

    Raises:
        PackingError: it is none of gzip and deflate.
    """

    def __init__(self, encoding: bytes) -> None:
        if encoding.lower() not in _PACKED:
            raise PackingError(f"a body packed as {encoding.decode('latin-1')}, which was not asked for")
        self._unpack = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, piece: bytes, *, max_bytes: int = MAX_PIECE_BYTES) -> bytes:
        """Return what a piece says.

        Raises:
            PackingError: it is broken, or says more than so many bytes.
        """
        try:
            plain = self._unpack.decompress(piece, max_bytes)
        except zlib.error as error:
            raise PackingError(f"a broken body: {error}") from error
        if self._unpack.unconsumed_tail:
            raise PackingError(f"a body of more than {max_bytes} bytes")
        return plain


def unpacked(body: bytes, encoding: bytes, *, max_bytes: int) -> bytes:
    """Return a body as it was before its server packed it.

    Raises:
        PackingError: it cannot be unpacked, or is larger than allowed.
    """
    if not encoding or encoding == b"identity":
        return body
    return Unpacking(encoding).feed(body, max_bytes=max_bytes)


class Body:
    """The body of one answer.

    Args:
        pause: stops or goes on taking bytes from the connection.
    """

    def __init__(self, pause: Callable[[bool], None]) -> None:
        self._pause = pause
        self._pieces: list[bytes] = []
        self._num_bytes = 0
        self._paused = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.ended = False
        """No more will come."""

    @property
    def is_read(self) -> bool:
        """Whether all that was sent has come and been read, so that the connection can be used again."""
        return self.ended and self._error is None

    @property
    def is_awaited(self) -> bool:
        """Whether a reader waits for the server, and not the server for a reader."""
        return not self._num_bytes

    async def read(self) -> bytes:
        """Return all that has come since the last time, waiting for the next piece; nothing at the end.

        Raises:
            HttpError: the connection ended before the body, or nothing came in time.
        """
        if not self._num_bytes and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        pieces = self._pieces
        if pieces:
            self._pieces, self._num_bytes = [], 0
            if self._paused:
                self._paused = False
                self._pause(False)  # noqa: FBT003
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._error is not None:
            raise self._error
        return b""

    def feed(self, piece: bytes) -> None:
        """Take a piece."""
        if piece:
            self._pieces.append(piece)
            self._num_bytes += len(piece)
            if self._num_bytes > PAUSE_BYTES and not self._paused:
                self._paused = True
                self._pause(True)  # noqa: FBT003
            self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Take no more: all has come, or the ``error`` is why not."""
        if not self.ended:
            self.ended, self._error = True, error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
