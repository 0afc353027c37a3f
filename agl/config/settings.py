"""Settings: a composed configuration, resolved for use and kept as written for saving; what of it is secret."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from agl.errors import ConfigError
from agl.types.record import Json

MISSING = "???"
HIDDEN = "***"

_SECRET_KEY = re.compile(
    r"(?:^|[_-])(?:api[_-]?key|access_key|private_key|token|password|passwd|secret|authorization)$",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s@]+@")
_RESOLVER_CALL = re.compile(r"(?<!\\)\$\{\s*(?!oc\.select\s*:)[\w.]+\s*:")
"""Whose value may be another at another time or place; ``oc.select`` only refers to other settings."""
_RAISED = re.compile(r"^\w+ raised while resolving interpolation: ")
_FROM_ENVIRONMENT = re.compile(r"(?<!\\)\$\{\s*oc\.env\s*:")
_QUOTED = re.compile(r"'(.+?)'")
_SHORTEST_SECRET = 6  # shorter values ("none", "test") would blank out innocent text


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A composed configuration.

    Args:
        source: the file it was composed from, for messages.
        raw: as written, ``${...}`` and all.
        values: the same, resolved to plain Python values; ``???`` where a value must still be given.
    """

    source: str
    raw: Mapping[str, Json]
    values: Mapping[str, Json]

    def with_values(self, **changes: Json) -> Settings:
        """Return the settings with these root keys replaced, and what refers to them resolved anew."""
        raw = {**self.raw, **changes}
        return Settings(source=self.source, raw=raw, values=resolved(raw))

    def missing(self) -> list[str]:
        """Return the dotted keys that are still ``???``."""
        return [key for key, value in leaves(self.raw) if value == MISSING]


def leaves(node: Json, key: str = "") -> Iterator[tuple[str, Json]]:
    """Yield (dotted key, value) of everything that is not a mapping or a list."""
    if isinstance(node, Mapping):
        for name, value in cast("Mapping[str, Json]", node).items():
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for index, item in enumerate(cast("list[Json]", node)):
            yield from leaves(item, f"{key}[{index}]")
    else:
        yield key, node


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unresolved:
    """A value that cannot be resolved: where, as written, why."""

    key: str
    written: str
    reason: str


def resolved(raw: Mapping[str, Json]) -> dict[str, Json]:
    """Return plain values with every interpolation replaced; ``???`` where one leads to a missing value.

    Raises:
        ConfigError: an interpolation that cannot be resolved, naming its key.
    """
    failures: list[_Unresolved] = []
    try:
        values: dict[str, Json] = _plain(OmegaConf.create(dict(raw)), "", failures)
    except RecursionError as error:
        raise ConfigError("the settings refer to each other in a circle") from error
    if failures:
        first = next(filter(_is_at_fault, failures), failures[0])
        raise ConfigError(f"{first.key}: cannot resolve {first.written}: {first.reason}")
    return values


def _is_at_fault(failure: _Unresolved) -> bool:
    """Whether the value itself names what is not there, and not only refers to one that does."""
    named = _QUOTED.findall(failure.reason)
    return any(name in failure.written for name in named)


def _plain(node: Any, key: str, failures: list[_Unresolved]) -> Any:
    if isinstance(node, DictConfig):
        names = [str(name) for name in node]
        return {name: _item(node, name, f"{key}.{name}" if key else name, failures) for name in names}
    if isinstance(node, ListConfig):
        return [_item(node, index, f"{key}[{index}]", failures) for index in range(len(node))]
    return node


def _item(node: Any, name: str | int, key: str, failures: list[_Unresolved]) -> Any:
    try:
        return MISSING if OmegaConf.is_missing(node, name) else _plain(node[name], key, failures)
    except InterpolationToMissingValueError:
        return MISSING
    except OmegaConfBaseException as error:
        written = cast("Any", OmegaConf.to_container(node, resolve=False))[name]
        reason = _RAISED.sub("", str(error).strip().splitlines()[0]).strip('"')
        failures.append(_Unresolved(key=key, written=str(written), reason=reason))
        return MISSING


def is_secret(key: str) -> bool:
    """Tell whether the last part of a dotted key names a secret (``api_key``, ``hf_token``; not ``max_tokens``)."""
    return bool(_SECRET_KEY.search(key.rpartition(".")[2]))


def without_password(text: str) -> str:
    """Return the text with the user and password of every URL in it hidden."""
    return _URL_PASSWORD.sub(f"{HIDDEN}@", text)


def masked(settings: Settings) -> dict[str, Json]:
    """Return the resolved values, secrets replaced by the ``${oc.env:NAME}`` that they come from, else by ``***``."""
    written = dict(leaves(settings.raw))
    secrets = _secrets(settings)

    def safe(key: str, value: Json) -> Json:
        if not isinstance(value, str) or not value:
            return value
        source = written.get(key)
        if isinstance(source, str) and _FROM_ENVIRONMENT.search(source):
            return source
        return _hidden(key, value, secrets)

    return _mapped(settings.values, safe)


def _secrets(settings: Settings) -> frozenset[str]:
    """The strings that must not appear anywhere, wherever else they are referred to."""
    written = dict(leaves(settings.raw))
    found = {
        value
        for key, value in leaves(settings.values)
        if isinstance(value, str)
        and len(value) >= _SHORTEST_SECRET
        and value != MISSING
        and (is_secret(key) or _FROM_ENVIRONMENT.search(str(written.get(key, ""))))
    }
    return frozenset(found)


def _hidden(key: str, value: str, secrets: frozenset[str]) -> str:
    if is_secret(key) and value not in (MISSING, "none"):
        return HIDDEN
    for secret in secrets:
        value = value.replace(secret, HIDDEN)
    return without_password(value)


def _mapped(node: Json, change: Callable[[str, Json], Json], key: str = "") -> Json:
    if isinstance(node, Mapping):
        items = cast("Mapping[str, Json]", node).items()
        return {name: _mapped(value, change, f"{key}.{name}" if key else str(name)) for name, value in items}
    if isinstance(node, list):
        return [_mapped(item, change, f"{key}[{i}]") for i, item in enumerate(cast("list[Json]", node))]
    return change(key, node)


def settings_text(settings: Settings) -> str:
    """Return the resolved settings as YAML, secrets masked."""
    return OmegaConf.to_yaml(OmegaConf.create(_mapped(masked(settings), _escaped)))


def _escaped(key: str, value: Json) -> Json:
    del key
    return (
        value.replace("${", "\\${")
        if isinstance(value, str) and not _FROM_ENVIRONMENT.search(value)
        else value
    )


def save_settings(settings: Settings, path: Path) -> None:
    """Write what ``load_settings`` needs to go on with the same settings, in one step.

    Times and folders are fixed to what they are now; references between settings stay references, so that an override
    of one reaches the others; values from the environment stay ``${oc.env:NAME}``; other secrets become ``***``.
    """
    now = dict(leaves(settings.values))
    secrets = _secrets(settings)

    def kept(key: str, value: Json) -> Json:
        if not isinstance(value, str) or _FROM_ENVIRONMENT.search(value):
            return value
        if _RESOLVER_CALL.search(value):
            found = now[key]
            return _hidden(key, found, secrets).replace("${", "\\${") if isinstance(found, str) else found
        return value if value.startswith("${") else _hidden(key, value, secrets)

    text = "# Written by agl. `agl train --resume` starts from this file.\n"
    text += OmegaConf.to_yaml(OmegaConf.create(_mapped(settings.raw, kept)))
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
