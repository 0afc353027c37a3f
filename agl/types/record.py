"""The base of every record that crosses a process border: immutable, exact, JSON in and out."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Self

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

    @classmethod
    def trusted(cls, fields: dict[str, Any]) -> Self:
        """Return a record that becomes the owner of all its fields, unchecked: what a store wrote was checked before.

        The same as ``model_construct``, at a fifth of its cost and a third of that of a check.
        """
        record = cls.__new__(cls)
        set_attribute = object.__setattr__
        set_attribute(record, "__dict__", fields)
        set_attribute(record, "__pydantic_fields_set__", _names(cls))
        set_attribute(record, "__pydantic_extra__", None)
        set_attribute(record, "__pydantic_private__", None)
        return record

    def changed(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, unchecked, at a third of what ``model_copy`` costs."""
        return self.trusted({**self.__dict__, **changes})


@cache
def _names(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)
