"""Which store a command means: one that is served at a URL, or the one that settings make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import cast

from agl.config import Settings, build, compose
from agl.errors import ConfigError
from agl.store.base import LightningStore
from agl.types.record import Json

_PATIENCE: Mapping[str, Json] = MappingProxyType({"retry_seconds": 0.0, "answer_seconds": 600.0})
"""Of a person at a terminal: told at once that nobody answers, but deleting a million spans may take its time."""


def store_settings(overrides: Sequence[str], *, config_dir: Path | None, **options: Json) -> Settings:
    """Compose the settings of ``agl store``; the command's options, where given, replace its root keys.

    Raises:
        ConfigError: a mistake in the overrides.
    """
    given = {name: literal(value) for name, value in options.items() if value is not None}
    return compose("store", overrides, config_dir=config_dir).with_values(**given)


def literal(value: Json) -> Json:
    """Keep text from being read as a reference to other settings."""
    return value.replace("${", "\\${") if isinstance(value, str) else value


def file_of(settings: Settings) -> Path | None:
    """Return the file of the settings' store, None where it has none."""
    path = cast("Mapping[str, Json]", settings.values["store"]).get("path")
    return Path(path) if isinstance(path, str) else None


def existing_store(
    overrides: Sequence[str], *, store_url: str | None, token: str | None, config_dir: Path | None
) -> LightningStore:
    """Return the store that the options and overrides name, built but not open.

    Raises:
        ConfigError: a mistake in the settings, both a URL and a file, or a file that does not exist.
    """
    if store_url is not None:
        if overrides:
            raise ConfigError(f"{overrides[0]}: --store-url says which store it is; leave this out")
        settings = store_settings(["store=client"], config_dir=config_dir, token=token)
        node = cast("Mapping[str, Json]", settings.raw["store"])
        client = {**node, "url": literal(store_url), "token": "${token}", **_PATIENCE}
        at_url = settings.with_values(store=client)
        return build(at_url, LightningStore, "store")  # type: ignore[type-abstract]
    settings = store_settings(overrides, config_dir=config_dir)
    file = file_of(settings)
    if file is not None and not file.is_file():
        raise ConfigError(
            f"there is no store in {file}: give store.path=FILE, or --store-url URL of one that is served"
        )
    return build(settings, LightningStore, "store")  # type: ignore[type-abstract]
