"""The base of every record that crosses a process border: immutable, exact, JSON in and out."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

Json = Any
"""Any JSON value: None, bool, int, float, str, list or dict of these."""


class Record(BaseModel):
    """A frozen pydantic model that refuses unknown fields and non-finite numbers where typed as float."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
