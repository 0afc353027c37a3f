"""Findings: what a check says of one thing, and what to do where it is not well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report.

    Args:
        status: ``fail`` is what keeps things from working, ``warn`` what may surprise.
        what: was looked at.
        detail: what was seen.
        fix: what to do; None where nothing is to be done.
    """

    status: Status
    what: str
    detail: str
    fix: str | None = None


def fine(what: str, detail: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(status="ok", what=what, detail=detail)


def warning(what: str, detail: str, fix: str) -> Finding:
    """Return a finding that something may surprise, with what to do about it."""
    return Finding(status="warn", what=what, detail=detail, fix=fix)


def failure(what: str, detail: str, fix: str) -> Finding:
    """Return a finding that something does not work, with what to do about it."""
    return Finding(status="fail", what=what, detail=detail, fix=fix)
