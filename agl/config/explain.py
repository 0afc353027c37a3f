"""What a failed composition means for the person who typed it: one line, the key, and the nearest right one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from agl.config.settings import HIDDEN, is_secret, without_password
from agl.errors import ConfigError
from agl.types.record import Json

Compose = Callable[[Sequence[str]], Mapping[str, Json]]
_QUOTED = re.compile(r"'(.+?)'")
_WITHIN = re.compile(r"In '(.+?)': ")


def explanation(error: Exception, overrides: Sequence[str], folders: Sequence[Path], compose: Compose) -> str:
    """Return one line on what was wrong with the overrides or the files.

    Args:
        error: what the composition raised.
        overrides: what it was asked for.
        folders: the search path.
        compose: composes again with other overrides, to find out which keys there are.
    """
    if isinstance(error, yaml.MarkedYAMLError):
        return _broken_yaml(error)
    if isinstance(error, UnicodeDecodeError):
        return (
            f"{_not_utf8(folders) or 'a settings file'} is not UTF-8 text ({error.reason}): save it as UTF-8"
        )
    if isinstance(error, OverrideParseException):
        return not_an_override(error.override)
    if type(error) is ValueError and "group override" in str(error):
        return _group_without_choice(overrides, folders)
    if isinstance(error, MissingConfigException):
        return _missing_file(error, folders)
    place, first = _first_line(error)
    quoted = _QUOTED.search(first)
    if quoted is None:
        return f"{place}{first}"
    if "must be a DictConfig" in first:
        files = (folder / f"{quoted.group(1)}.yaml" for folder in folders)
        file = next((file for file in files if file.is_file()), quoted.group(1))
        return f"{file} is a list: settings are written KEY: VALUE"
    return f"{place}{_about(quoted.group(1), first, overrides, folders, compose)}"


def _first_line(error: Exception) -> tuple[str, str]:
    """Where the error says that it happened (``NAME.yaml: ``), and the first line of what it says."""
    deepest: BaseException = error
    while not str(deepest).strip() and deepest.__cause__ is not None:
        deepest = deepest.__cause__
    lines = str(deepest).strip().splitlines() or [type(deepest).__name__]
    within = _WITHIN.match(lines[0])
    if within:
        return f"{within.group(1)}.yaml: ", lines[0][within.end() :]
    where = getattr(deepest, "full_key", None)
    return (f"{where}: " if isinstance(deepest, OmegaConfBaseException) and where else ""), lines[0]


def _about(
    subject: str, first: str, overrides: Sequence[str], folders: Sequence[Path], compose: Compose
) -> str:
    """Put what Hydra says about a key or an override in our words."""
    if first.startswith("Could not override"):
        return _unknown_key(subject, overrides, folders, compose)
    if first.startswith("Could not delete"):
        keys = _tree(compose, [o for o in overrides if not o.startswith(f"~{subject}")])
        if subject in _dotted(keys):
            return f"~{subject}: it is null, which counts as not there"
        return f"~{subject}: there is nothing of that name to remove{_did_you_mean(subject, keys, '~')}"
    if first.startswith("Could not append"):
        return f"+{subject}: {subject} is there already; write it without the +"
    if first.startswith(("Sweep parameters", "Ambiguous value")):
        return f"{subject}: several values at once; give one (a list is key=[a,b])"
    return first


def _not_utf8(folders: Sequence[Path]) -> Path | None:
    """The first file of settings that is not UTF-8."""
    for file in (file for folder in folders for file in sorted(folder.rglob("*.yaml"))):
        try:
            file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return file
    return None


def not_an_override(text: str) -> str:
    """Return what is wrong with an override that cannot be read; the value of a secret is not repeated."""
    key, equals, _ = text.partition("=")
    shown = f"{key}={HIDDEN}" if equals and is_secret(key) else without_password(text)
    return f"{shown}: not an override; write key=value (in quotes where the value has spaces or {{}}[],=)"


def refuse_misspelt_group(override: str, folders: Sequence[Path]) -> None:
    """Refuse ``+recipee=NAME``, which Hydra would add as a new key.

    Raises:
        ConfigError: the key is no group, but almost one.
    """
    group, equals, _ = override.removeprefix("+").partition("=")
    known = _groups(folders)
    if override.startswith("+") and equals and "." not in group and group not in known:
        near = difflib.get_close_matches(group, known, 1, cutoff=0.85)
        if near:
            raise ConfigError(
                f"{override}: there is no group of settings called {group}; did you mean {near[0]}?"
            )


def _broken_yaml(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{mark.name}:{mark.line + 1}" if mark else "a YAML file"
    return f"{where}: not valid YAML: {error.problem or error.context}"


def _missing_file(error: MissingConfigException, folders: Sequence[Path]) -> str:
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    if not group:
        return f"there is no {option}.yaml in {', '.join(map(str, folders))}"
    options = _options(group, folders)
    if options:
        return f"there is no {group} called {option}{nearest(option, options)}"
    return f"there is no group of settings called {group}{nearest(group, _groups(folders))}"


def _group_without_choice(overrides: Sequence[str], folders: Sequence[Path]) -> str:
    """Hydra does not say which override it means: one that gives a group no name (``algorithm=null``)."""
    for override in overrides:
        group, _, choice = override.lstrip("+").partition("=")
        options = _options(group, folders)
        if options and choice not in options:
            return f"{override}: choose one of {', '.join(options)}, or remove it with ~{group}"
    return "a group of settings takes the name of one of its files"


def _options(group: str, folders: Sequence[Path]) -> list[str]:
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def _groups(folders: Sequence[Path]) -> list[str]:
    found = {
        path.parent.relative_to(folder).as_posix() for folder in folders for path in folder.rglob("*/*.yaml")
    }
    return sorted(found)


def _unknown_key(key: str, overrides: Sequence[str], folders: Sequence[Path], compose: Compose) -> str:
    others = [o for o in overrides if o.partition("=")[0] != key]
    given = next((o for o in overrides if o.partition("=")[0] == key), f"{key}=...")
    if _options(key, folders):
        option = given.partition("=")[2]
        known = _options(key, folders)
        if option not in known:
            return f"there is no {key} called {option}{nearest(option, known)}"
        return f"{given}: write +{given}, as nothing of the group {key} is chosen yet"
    return f"{key} is not a setting{_did_you_mean(key, _tree(compose, others))}"


def _tree(compose: Compose, overrides: Sequence[str]) -> Mapping[str, Json]:
    """The settings without the overrides at fault; without any where that does not help."""
    for attempt in (overrides, [o for o in overrides if o.startswith("+")], []):
        try:
            return compose(attempt)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError):
            continue
    return {}


def _did_you_mean(key: str, tree: Mapping[str, Json], prefix: str = "") -> str:
    *parents, name = key.split(".")
    node: Any = tree
    for depth, part in enumerate(parents):
        if not isinstance(node, Mapping):
            return f": {'.'.join(parents[:depth])} is a single value"
        keys = cast("Mapping[str, Any]", node)
        if part not in keys:
            return nearest(part, keys, ".".join([prefix, *parents[:depth]]).lstrip("."))
        node = keys[part]
    if not isinstance(node, Mapping):
        return f": {'.'.join(parents)} is a single value"
    if not node:
        return f" yet; to add it write +{key}=..."
    below = [str(k) for k in cast("Mapping[str, Any]", node) if not str(k).startswith("_")]
    close = difflib.get_close_matches(name, below, 1)
    if close:
        return f"; did you mean {prefix}{'.'.join([*parents, close[0]])}?"
    elsewhere = [k for k in _dotted(tree) if k.rpartition(".")[2] == name]
    if elsewhere:
        return f"; did you mean {prefix}{elsewhere[0]}?"
    return nearest(name, below, ".".join(parents))


def _dotted(node: Mapping[str, Any], key: str = "") -> list[str]:
    found: list[str] = []
    for name, value in node.items():
        here = f"{key}.{name}" if key else name
        found.append(here)
        if isinstance(value, Mapping):
            found += _dotted(cast("Mapping[str, Any]", value), here)
    return found


def nearest(name: str, known: Iterable[str], parent: str = "") -> str:
    """Return ``; did you mean X?``, or what there is when nothing is near."""
    names = [n for n in known if not n.startswith("_")]
    close = difflib.get_close_matches(name, names, 1)
    dot = f"{parent}." if parent else ""
    if close:
        return f"; did you mean {dot}{close[0]}?"
    return f"; there is {', '.join(names)}" if names else ""
