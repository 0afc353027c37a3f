"""Compose settings from YAML groups and overrides, through Hydra's compose API."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.conf import HydraConf
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agl.config.explain import explanation, not_an_override, refuse_misspelt_group
from agl.config.settings import HIDDEN, Settings, leaves, resolved
from agl.errors import ConfigError
from agl.types.record import Json

log = logging.getLogger(__name__)

_URL_VALUE = re.compile(r"([^=]+)=([A-Za-z][A-Za-z0-9+.-]*://[^\s'\\]*)")


def built_in_folder(name: str) -> Path:
    """Return agl's own ``configs`` or ``recipes``: inside the package in a wheel, beside it in a checkout."""
    package = Path(str(files("agl")))
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


def search_folders(config_dir: Path | None = None) -> list[Path]:
    """Return where groups and recipes are looked for, in order: built in, ``./configs``, ``config_dir``.

    Raises:
        ConfigError: ``config_dir`` is not a folder, or has a file that a built-in one would hide.
    """
    folders = [built_in_folder("configs").resolve()]
    local = Path("configs").resolve()
    if local.is_dir() and local not in folders:
        hidden = _hidden_files(local, folders)
        if hidden:
            log.warning("configs/%s is ignored: agl has a file of that name; rename yours", hidden[0])
        folders.append(local)
    if config_dir is not None:
        if not config_dir.is_dir():
            raise ConfigError(f"--config-dir {config_dir} is not a folder")
        given = config_dir.resolve()
        if given not in folders:
            hidden = _hidden_files(given, folders)
            if hidden:
                raise ConfigError(
                    f"{config_dir / hidden[0]} would be ignored: that name is taken; rename the file"
                )
            folders.append(given)
    return folders


def _hidden_files(folder: Path, before: Sequence[Path]) -> list[str]:
    """Name the YAML files of ``folder`` that differ from one of the same name in an earlier folder."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.yaml"))
    return [
        name
        for name in names
        if any(
            (b / name).is_file() and (b / name).read_bytes() != (folder / name).read_bytes() for b in before
        )
    ]


def compose(
    name: str,
    overrides: Sequence[str] = (),
    *,
    config_dir: Path | None = None,
    folders: Sequence[Path] | None = None,
) -> Settings:
    """Return the settings of ``name``.yaml with the overrides applied (Hydra's grammar).

    Args:
        name: the root file, e.g. ``train``.
        overrides: e.g. ``+recipe=ppo_sql``, ``algorithm=grpo``, ``algorithm.group_size=16``, ``~proxy``.
        config_dir: a further folder of groups and recipes.
        folders: the whole search path, instead of the built-in folder and ``./configs``.

    Raises:
        ConfigError: one line that names the file, group or key that is wrong, and the nearest right one.
    """
    places = list(folders) if folders is not None else search_folders(config_dir)
    return _composed(places, name, overrides, source=f"{name}.yaml")


def load_settings(path: Path, overrides: Sequence[str] = ()) -> Settings:
    """Return the settings that ``save_settings`` wrote, with overrides of single keys applied.

    Raises:
        ConfigError: no such file, a broken file, or a secret that was not written and is not given again.
    """
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: there is no run to go on with in {path.parent}")
    settings = _composed([path.parent.resolve()], path.stem, overrides, source=str(path))
    for key, value in leaves(settings.values):
        if isinstance(value, str) and HIDDEN in value:
            raise ConfigError(f"{key} is a secret and was not saved; give it again: {key}=...")
    return settings


def _composed(folders: Sequence[Path], name: str, overrides: Sequence[str], *, source: str) -> Settings:
    overrides = [_whole_mapping(_quoted_url(override)) for override in overrides]
    for override in overrides:
        if override.lstrip("+~").startswith(("hydra.", "hydra/", "hydra=")):
            raise ConfigError(f"{override}: agl takes no settings of Hydra itself")
        if not override.lstrip("+~").partition("=")[0]:
            raise ConfigError(not_an_override(override))
        refuse_misspelt_group(override, folders)
    try:
        raw = _raw(folders, name, overrides)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            explanation(error, overrides, folders, lambda kept: _raw(folders, name, kept))
        ) from error
    for override in overrides:
        _refuse_emptying(raw, override)
    return Settings(source=source, raw=raw, values=resolved(raw))


def _refuse_emptying(raw: Mapping[str, Json], override: str) -> None:
    """Refuse ``key={}`` where the mapping has keys: mappings are merged, so it would change nothing.

    Raises:
        ConfigError: it would.
    """
    key, _, value = override.lstrip("+").partition("=")
    if value.replace(" ", "") != "{}":
        return
    found: Any = raw
    for name in key.split("."):
        found = cast("Mapping[str, Any]", found).get(name) if isinstance(found, Mapping) else None
    if isinstance(found, Mapping) and found:
        removals = " ".join(f"~{key}.{name}" for name in cast("Mapping[str, Any]", found))
        raise ConfigError(f"{override} would leave all of it as it is; take out what it has: {removals}")


def _quoted_url(override: str) -> str:
    """Put a value that is a URL in quotes: Hydra's grammar has no ``=``, ``&`` and ``,`` outside of them."""
    found = _URL_VALUE.fullmatch(override)
    return f"{found.group(1)}='{found.group(2)}'" if found else override


def _whole_mapping(override: str) -> str:
    """Let ``key={...}`` bring keys of its own; Hydra only takes it with ``++``. What is no setting is refused later."""
    key, _, value = override.partition("=")
    return (
        f"++{override}"
        if value.startswith("{") and "." in key and not key.startswith(("+", "~"))
        else override
    )


def _raw(folders: Sequence[Path], name: str, overrides: Sequence[str]) -> dict[str, Json]:
    first, *others = folders
    path = ",".join(
        '"file://{}"'.format(str(folder).replace("\\", "\\\\").replace('"', '\\"')) for folder in others
    )
    extra = [f"hydra.searchpath=[{path}]"] if others else []
    extra += [  # settings of Hydra's own command line, a fifth of the time to read
        f"~hydra/{group}"
        for default in HydraConf().defaults
        for group, option in cast("dict[str, str | None]", default).items()
        if option
    ]
    with initialize_config_dir(str(first), job_name="agl", version_base="1.3"):
        config = hydra_compose(name, [*overrides, *extra])
    OmegaConf.register_new_resolver("recipe_dir", recipe_dir, replace=True)
    OmegaConf.register_new_resolver("file", file_text, replace=True)
    raw = cast("dict[str, Any]", OmegaConf.to_container(config, resolve=False))
    options = _options(raw.pop("options", None), folders)
    for override in overrides:
        _leave_out(raw, override, overrides, own=first == built_in_folder("configs"))
        _put_in(raw, override, overrides, options)
    return raw


def _options(options: Json, folders: Sequence[Path]) -> dict[str, dict[str, dict[str, Json]]]:
    """What a recipe says of the options that it does not choose: ``options: {algorithm: {apo: {beam_width: 2}}}``."""
    try:
        found = {
            group: {name: dict(values) for name, values in names.items()}
            for group, names in cast("dict[str, dict[str, dict[str, Json]]]", options or {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError("options must be written as {GROUP: {OPTION: {SETTING: value}}}") from error
    for group, names in found.items():
        for name in names:
            if not any((folder / group / f"{name}.yaml").is_file() for folder in folders):
                raise ConfigError(f"options.{group}.{name}: there is no {group}={name}")
    return found


def _put_in(
    raw: dict[str, Json],
    override: str,
    overrides: Sequence[str],
    options: Mapping[str, Mapping[str, Mapping[str, Json]]],
) -> None:
    """Put into ``raw`` what the recipe says of an option that this override chooses; the command line goes first."""
    group, _, option = override.partition("=")
    said = options.get(group, {}).get(option)
    if said is not None:
        given = _given_of(group, overrides)
        node = cast("dict[str, Json]", raw.get(group) or {})
        raw[group] = {**node, **{key: value for key, value in said.items() if key not in given}}


def _given_of(group: str, overrides: Sequence[str]) -> set[str]:
    """The settings of a group that the command line names."""
    return {
        one.lstrip("+").partition("=")[0].split(".")[1]
        for one in overrides
        if one.lstrip("+").startswith(f"{group}.")
    }


def _leave_out(raw: dict[str, Json], override: str, overrides: Sequence[str], *, own: bool) -> None:
    """Take out of ``raw`` what a recipe says about a group and this override makes void.

    ``~GROUP`` leaves the whole group out; Hydra itself removes only the group's file. ``GROUP=OPTION`` leaves out the
    recipe's settings that an option of agl's own does not have, as ``algorithm=baseline`` has no ``iterations``: its
    file lists all that it has. What the command line says itself stays, and is refused where it is wrong.
    """
    if override.startswith("~"):
        raw.pop(override[1:].partition("=")[0], None)
        return
    group, _, option = override.partition("=")
    file = built_in_folder("configs") / group / f"{option}.yaml"
    if (
        not own
        or group == "recipe"
        or not group.isidentifier()
        or not file.is_file()
        or not isinstance(raw.get(group), dict)
    ):
        return
    has = set(cast("dict[str, Json]", yaml.safe_load(file.read_text(encoding="utf-8"))))
    kept = has | _given_of(group, overrides)
    raw[group] = {key: value for key, value in raw[group].items() if key in kept}


def recipe_dir(name: str) -> str:
    """Return the folder of a recipe's code: ``./recipes/NAME``, else agl's own.

    Raises:
        ConfigError: neither exists.
    """
    places = [Path("recipes") / name, built_in_folder("recipes") / name]
    for place in places:
        if place.is_dir():
            return str(place.resolve())
    raise ConfigError(f"there is no recipe folder {name}: looked for {' and '.join(map(str, places))}")


def file_text(name: str) -> str:
    """Return the text of a file, without the line break at its end: ``${file:prompts/best.txt}`` in a setting.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(name).expanduser().read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {name} cannot be read: {error}") from error
