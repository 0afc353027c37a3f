"""Signatures: names, annotations evaluated, required or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from agl.config.signatures import Parameter, parameters
from agl.errors import ConfigError
from agl.types import RolloutConfig

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(kw_only=True)
class Base:
    size: int
    rate: float = 0.5


class Derived(Base):
    pass


def heavy(weights: Tensor, *, name: str | None = None, **more: int) -> None:
    del weights, name, more


def positional(x: int, /) -> int:
    return x


def test_a_dataclass_shows_its_fields_also_through_a_subclass() -> None:
    expected = {
        "size": Parameter(annotation=int, required=True),
        "rate": Parameter(annotation=float, required=False),
    }
    assert parameters(Base) == expected
    assert parameters(Derived) == expected


def test_an_annotation_known_to_type_checkers_only_is_any() -> None:
    found = parameters(heavy)
    assert found["weights"] == Parameter(annotation=Any, required=True)
    assert found["name"] == Parameter(annotation=str | None, required=False)
    assert "**" in found


def test_a_pydantic_model_shows_its_fields() -> None:
    assert parameters(RolloutConfig)["max_attempts"].required is False


def test_positional_only_parameters_cannot_be_given_by_settings() -> None:
    with pytest.raises(ConfigError, match="x has no name outside"):
        parameters(positional)
