"""The settings with which recorded rollouts run again: those of the run that had them, or of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agl.cli.changed_records import run_folder_of
from agl.cli.contestants import Choice, choice_from_version
from agl.cli.run_folder import RUNS, SETTINGS_FILE
from agl.config import Settings, compose, load_settings
from agl.config.settings import MISSING, leaves
from agl.errors import ConfigError, NotFoundError
from agl.launch.rerun import Rerun
from agl.store.base import LightningStore
from agl.types import Rollout

RERUN = f"{Rerun.__module__}.{Rerun.__qualname__}"
KEYS = (
    "agent",
    "runner",
    "proxy",
    "inference",
    "grader",
    "hooks",
    "resources",
    "store_server",
    "name",
    "trusted",
)


def is_override(text: str) -> bool:
    """Whether an argument is an override of settings, and not an id: ids have no ``=``, and begin with no ``+``."""
    return "=" in text or text.startswith(("+", "~"))


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the ids and the overrides among the arguments."""
    overrides = [one for one in arguments if is_override(one)]
    return [one for one in arguments if one not in overrides], overrides


def rerun_settings(
    rollout: Rollout, place: str | None, overrides: Sequence[str], *, config_dir: Path | None
) -> Settings:
    """Return the whole settings of the run that had the rollout, with the overrides.

    Args:
        rollout: one that it had.
        place: the store's file, None where it is served.
        overrides: of single settings; with ``+recipe=NAME`` or an agent among them they stand for the run's own where
            these are not here.
        config_dir: a further folder of config groups.

    Raises:
        ConfigError: a mistake in the overrides, or nothing says what runs.
    """
    has_recipe = any(one.lstrip("+").startswith("recipe=") for one in overrides)
    folder = None if has_recipe else run_folder_of(place, rollout)
    if folder is not None:
        if config_dir is not None:
            raise ConfigError(
                f"--config-dir: the settings are those of {folder}; leave it out, or give +recipe=NAME"
            )
        return load_settings(folder / SETTINGS_FILE, overrides).with_values(run_dir=str(folder))
    if not has_recipe and not any(one.lstrip("+").startswith("agent") for one in overrides):
        where = "" if rollout.run_id is None else f" (looked for {RUNS / rollout.run_id / SETTINGS_FILE})"
        raise ConfigError(
            f"the settings of the run that had {rollout.rollout_id} are not here{where}: say what runs it with"
            " +recipe=NAME or agent.target=FILE.py:NAME"
        )
    return compose("train", overrides, config_dir=config_dir)


def rerun_parts(settings: Settings, *, with_model: bool) -> Settings:
    """Return the root keys that a rerun is built of; without a model where none is asked, or nobody named one."""
    has_model = with_model and not any(
        value == MISSING for _, value in leaves(settings.values.get("inference"))
    )
    kept = [key for key in KEYS if key in settings.raw and (key != "inference" or has_model)]
    return Settings(
        source=settings.source,
        raw={"_target_": RERUN, **{key: settings.raw[key] for key in kept}},
        values={"_target_": RERUN, **{key: settings.values[key] for key in kept}},
    )


async def recorded_choice(
    store: LightningStore, rollout: Rollout, place: str | None, *, resources_id: str | None = None
) -> Choice | None:
    """Return what answered a rollout when it ran: the weights of its policy, where a run trained them; else None.

    Args:
        store: open.
        rollout: as it is recorded.
        place: the store's file, None where it is served.
        resources_id: whose model it is instead.

    Raises:
        ConfigError: these weights are gone, or there are no resources of that id.
    """
    wanted = resources_id or rollout.resources_id
    if wanted is None:
        return None
    try:
        named = await store.get_resources_by_id(wanted)
    except NotFoundError as error:
        raise ConfigError(
            f"the store has no resources {wanted}, which rollout {rollout.rollout_id} had: they were deleted"
        ) from error
    folder = RUNS / str(named.run_id) if place is None else Path(place).parent
    return await choice_from_version(named, store, folder)
