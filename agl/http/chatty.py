"""Libraries that log a line for every request; agents make thousands of them."""

from __future__ import annotations

import logging

CHATTY = ("httpx", "httpx2", "httpcore", "uvicorn.access", "openai", "anthropic", "urllib3")


def quieten() -> None:
    """Let these libraries log warnings and worse in this process, unless it was told otherwise by name before."""
    for name in CHATTY:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
