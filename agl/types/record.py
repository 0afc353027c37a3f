"""The base of every record that crosses a process border: immutable, exact, JSON in and out."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

Json = Any
"""Any JSON value: None, bool, int, float, str, list or dict of these."""
Identifier = Annotated[
    str,
    StringConstraints(
        max_length=200, pattern=r"^[^/\\\x00-\x20\x7f]*[^/\\\x00-\x20\x7f.][^/\\\x00-\x20\x7f]*$"
    ),
]
"""An id that callers give. It must fit one segment of a URL's path: 1 to 200 characters, no slash, backslash, space or
control character, and not dots alone.
"""


class Record(BaseModel):
    """A frozen pydantic model that refuses unknown fields and non-finite numbers where typed as float."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
