"""What counts as a reward: a finite number, or finite numbers by name of which one is primary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, cast

from agl.types.attributes import REWARD_DIMENSION_PREFIX, REWARD_VALUE

PRIMARY = "reward"
"""The dimension that is primary when nobody names one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A primary value and, where there are several, all dimensions by name (the primary one included)."""

    value: float
    dimensions: dict[str, float] = field(default_factory=dict[str, float])


def reward_from_value(value: object, *, primary: str | None = None) -> Reward:
    """Return the reward that a number or a mapping of numbers stands for.

    Args:
        value: a number (numpy's too), or numbers by dimension.
        primary: the dimension that trains the policy; by default the only one, or the one named ``reward``.

    Raises:
        TypeError: not a number (a bool and a str are none), or not a mapping of such.
        ValueError: NaN, infinite, no dimension, or no primary one.
    """
    if not isinstance(value, Mapping):
        if primary is not None:
            raise ValueError(
                f"primary={primary!r} names a dimension, but the reward is the single number {value!r}"
            )
        return Reward(value=finite(value, "a reward"))
    named = cast("Mapping[object, object]", value)
    dimensions = {_name(key): finite(number, f"reward dimension {key!r}") for key, number in named.items()}
    return Reward(value=dimensions[_primary(dimensions, primary)], dimensions=dimensions)


def reward_attributes(reward: Reward) -> dict[str, float]:
    """Return a reward as the attributes of its span."""
    dimensions = {f"{REWARD_DIMENSION_PREFIX}{name}": number for name, number in reward.dimensions.items()}
    return {REWARD_VALUE: reward.value, **dimensions}


def reward_from_attributes(attributes: Mapping[str, Any]) -> Reward:
    """Return the reward that a span's attributes say.

    Raises:
        TypeError: they say none.
        ValueError: one that is not finite.
    """
    dimensions = {
        key.removeprefix(REWARD_DIMENSION_PREFIX): finite(value, key)
        for key, value in attributes.items()
        if key.startswith(REWARD_DIMENSION_PREFIX)
    }
    return Reward(value=finite(attributes.get(REWARD_VALUE), "a reward"), dimensions=dimensions)


def finite(value: object, what: str) -> float:
    """Return ``value`` as a float. TypeError when it is not a number, ValueError when it is not finite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        hint = "; write float(...) if 0.0 and 1.0 are meant" if isinstance(value, bool) else ""
        raise TypeError(f"{what} must be a number, not {type(value).__name__} {_short(value)}{hint}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} must be finite, not {number}; emit nothing when there is no reward")
    return number


def _name(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise TypeError(f"a reward dimension is named by a non-empty str, not {_short(key)}")
    return key


def _primary(dimensions: Mapping[str, float], primary: str | None) -> str:
    if primary is not None:
        if primary not in dimensions:
            raise ValueError(
                f"primary={primary!r} is none of the reward's dimensions: {', '.join(dimensions)}"
            )
        return primary
    if len(dimensions) == 1:
        return next(iter(dimensions))
    if PRIMARY in dimensions:
        return PRIMARY
    if not dimensions:
        raise ValueError("a reward of no dimensions; emit nothing when there is no reward")
    raise ValueError(
        f"a reward of {len(dimensions)} dimensions ({', '.join(dimensions)}) needs a primary one: "
        f"name it with emit_reward(..., primary=...), or call a dimension {PRIMARY!r}"
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
