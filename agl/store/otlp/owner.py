"""Which attempt a span of an OTLP request belongs to: named on the span, on its resource, or in the headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agl.types import Json
from agl.types.attributes import ATTEMPT_ID, ROLLOUT_ID, SPAN_SEQUENCE_ID

ROLLOUT_HEADER = "x-agl-rollout-id"
ATTEMPT_HEADER = "x-agl-attempt-id"
_ROLLOUT_KEYS = (ROLLOUT_ID, "agentlightning.rollout_id")
"""Ours, then the key of Agent Lightning 0.3, whose users can point their exporter at this store."""
_ATTEMPT_KEYS = (ATTEMPT_ID, "agentlightning.attempt_id")
_SEQUENCE_KEYS = (SPAN_SEQUENCE_ID, "agentlightning.span_sequence_id")
_KEYS = frozenset((*_ROLLOUT_KEYS, *_ATTEMPT_KEYS, *_SEQUENCE_KEYS))
_MAX_ID = 200
"""Characters of the longest id that a store gives or takes."""
_MAX_SEQUENCE_ID = (1 << 53) - 1
"""What every JSON reader holds exactly."""


class UnreadableOwnerError(ValueError):
    """What should name a rollout or an attempt cannot be an id."""


class Owner(NamedTuple):
    """A rollout and an attempt, each None where not named."""

    rollout_id: str | None = None
    attempt_id: str | None = None

    def or_else(self, outer: Owner) -> Owner:
        """Return this owner with what it leaves open taken from ``outer``, never another rollout's attempt."""
        if self.rollout_id is None:
            return Owner(outer.rollout_id, self.attempt_id or outer.attempt_id)
        if self.attempt_id is None and outer.rollout_id in (None, self.rollout_id):
            return Owner(self.rollout_id, outer.attempt_id)
        return self

    def refusal(self, allowed: Owner) -> str | None:
        """Return why a token that may touch ``allowed`` alone may not write here, None where it may."""
        for what, mine, its in (
            ("rollout", self.rollout_id, allowed.rollout_id),
            ("attempt", self.attempt_id, allowed.attempt_id),
        ):
            if mine is not None and mine != its:
                return f"the token is for another {what} than {mine!r}"
        return None


NOBODY = Owner()


def take_owner(attributes: dict[str, Json]) -> tuple[Owner, int | None]:
    """Take the keys of attribution off the attributes; return what they name and the wanted sequence id.

    A sequence id that is no positive whole number is a wish that cannot be met: the store numbers the span itself.

    Raises:
        UnreadableOwnerError: an id that is neither text nor a whole number, or too long to be one.
    """
    if _KEYS.isdisjoint(attributes):
        return NOBODY, None
    owner = Owner(_taken_id(attributes, _ROLLOUT_KEYS), _taken_id(attributes, _ATTEMPT_KEYS))
    return owner, _sequence_id(_taken(attributes, _SEQUENCE_KEYS))


def owner_from_headers(headers: Mapping[str, str]) -> Owner:
    """Return what a request's headers name.

    Raises:
        UnreadableOwnerError: an id is too long.
    """
    return Owner(
        *(_checked(headers.get(name, ""), name) or None for name in (ROLLOUT_HEADER, ATTEMPT_HEADER))
    )


def _checked(text: str, name: str) -> str:
    if len(text) > _MAX_ID:
        raise UnreadableOwnerError(f"{name} is longer than {_MAX_ID} characters")
    return text


def _taken(attributes: dict[str, Json], keys: tuple[str, str]) -> Json:
    ours, theirs = attributes.pop(keys[0], None), attributes.pop(keys[1], None)
    return theirs if ours is None or ours == "" else ours


def _taken_id(attributes: dict[str, Json], keys: tuple[str, str]) -> str | None:
    value = _taken(attributes, keys)
    if value is None or value == "":
        return None
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise UnreadableOwnerError(f"{keys[0]} is neither text nor a whole number")
    return _checked(str(value), keys[0])


def _sequence_id(value: Json) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _MAX_SEQUENCE_ID:
        return None
    return value
