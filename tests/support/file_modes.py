"""File modes that hold for root too: without this, nothing is unreadable where tests run as root."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager

_VERSION_3 = 0x20080522
_OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, of https://man7.org/linux/man-pages/man7/capabilities.7.html."""


@contextmanager
def obeyed_modes() -> Generator[None]:
    """Let this thread, and those that it starts, read and write only what the modes of files allow."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: the low 32 of each, then the high
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    before = sets[0]
    sets[0] = before & ~_OVERRIDES
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        sets[0] = before
        libc.capset(header, sets)
