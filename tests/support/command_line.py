"""The command line as tests call it."""

from __future__ import annotations

from collections.abc import Callable

Agl = Callable[..., tuple[int, str, str]]
"""Takes the arguments; returns exit code, standard output and standard error."""
