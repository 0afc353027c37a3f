"""Nodes: check a mapping with a ``_target_`` against the target's signature, and build what it names.

Checking makes a plan (every target found, every value typed) without calling anything; building carries the plan out,
innermost first. A key that is no parameter, a missing one, and a value of the wrong type never get as far as a call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from agl.config.compose import built_in_folder
from agl.config.explain import nearest
from agl.config.settings import MISSING, Settings, is_secret
from agl.config.signatures import Parameter, parameters
from agl.config.targets import TARGET, Trust, target_named
from agl.config.values import built_by, expected_name, fits, item_annotation, typed
from agl.errors import ConfigError
from agl.types.record import Json

T = TypeVar("T")
RESERVED = ("trusted",)
"""Root keys that are about the settings themselves and are not handed to the root's target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked node: the call that will build it.

    ``arguments`` holds typed values, and Plans (or lists and dicts with Plans in them) where nodes stood.
    """

    key: str
    name: str
    target: Callable[..., Any]
    arguments: Mapping[str, Any]
    annotations: Mapping[str, Any]


def check(settings: Settings) -> None:
    """Check every node of the settings, without building anything.

    Raises:
        ConfigError: the first mistake, with its key.
    """
    _root_plan(settings)


def build(settings: Settings, expected: type[T], key: str = "") -> T:
    """Check the settings and build the root, or the node at ``key``.

    Raises:
        ConfigError: a mistake in the settings, a constructor that refused them, or a result that is no ``expected``.
    """
    plan = _root_plan(settings) if not key else _plan_at(settings, key)
    made = _carried_out(plan)
    if not fits(expected, made):
        raise ConfigError(
            f"{plan.key or settings.source} builds a {type(made).__name__}; it must be a {expected.__name__}"
        )
    return cast("T", made)


def _root_plan(settings: Settings) -> Plan:
    if TARGET not in settings.values:
        raise ConfigError(f"{settings.source} has no {TARGET}: nothing says what it builds")
    node = {name: value for name, value in settings.values.items() if name not in RESERVED}
    plan = _plan(node, "", _trust(settings))
    _refuse_missing(settings.missing())
    return plan


def _refuse_missing(missing: Sequence[str]) -> None:
    if missing:
        some = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        # Where the records are is the user's to say: no recipe does.
        recipe = (
            "" if all(key.startswith("store.") for key in missing) else "choose a recipe (+recipe=NAME) or "
        )
        raise ConfigError(f"no value for {some}; {recipe}give {missing[0]}=...")


def _plan_at(settings: Settings, key: str) -> Plan:
    node: Any = settings.values
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise ConfigError(f"{settings.source} has no {key}")
        node = cast("Mapping[str, Json]", node)[part]
    if not _is_node(node):
        raise ConfigError(f"{key} has no {TARGET}: nothing says what it builds")
    plan = _plan(node, key, _trust(settings))
    _refuse_missing([missing for missing in settings.missing() if missing.startswith(f"{key}.")])
    return plan


def _trust(settings: Settings) -> Trust:
    named: list[str] = typed(settings.values.get("trusted") or [], list[str], "trusted", show=True)
    return Trust.of(named, built_in=built_in_folder("recipes"))


def _is_node(value: Json) -> bool:
    return isinstance(value, Mapping) and TARGET in value


def _holds_node(value: Json) -> bool:
    if _is_node(value):
        return True
    return any(_holds_node(item) for item in _items(value))


def _items(value: Json) -> Iterator[Json]:
    if isinstance(value, Mapping):
        yield from cast("Mapping[str, Json]", value).values()
    elif isinstance(value, list):
        yield from cast("list[Json]", value)


def _plan(node: Mapping[str, Json], key: str, trust: Trust, wanted: Any = Any) -> Plan:
    name = node[TARGET]
    if not isinstance(name, str):
        raise ConfigError(f"{_under(key, TARGET)} is {name!r}; it must be a name like agl.data.FileTasks")
    target = target_named(name, _under(key, TARGET), trust)
    if inspect.isclass(target) and not built_by(target, wanted):
        raise ConfigError(f"{key} builds a {target.__name__}; it must be {expected_name(wanted)}")
    known = parameters(target)
    open_ended = known.pop("**", None)
    for argument in node:
        if argument != TARGET and argument not in known and open_ended is None:
            raise ConfigError(
                f"{_under(key, argument)} is not a setting of {name}{nearest(argument, known, key)}"
            )
    for argument, parameter in known.items():
        if parameter.required and argument not in node:
            raise ConfigError(f"{_under(key, argument)} is missing: {name} requires it")
    free = Parameter(annotation=Any, required=False)
    annotations = {argument: known.get(argument, free).annotation for argument in node if argument != TARGET}
    arguments = {
        argument: _argument(node[argument], annotation, _under(key, argument), trust)
        for argument, annotation in annotations.items()
    }
    return Plan(key=key, name=name, target=target, arguments=arguments, annotations=annotations)


def _argument(value: Json, annotation: Any, key: str, trust: Trust) -> Any:
    """Return the value as the parameter wants it: a Plan, a container that holds Plans, or a typed plain value."""
    if _is_node(value):
        return _plan(value, key, trust, annotation)
    if _holds_node(value):
        inner = item_annotation(annotation)
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Json]", value).items()
            return {name: _argument(item, inner, _under(key, name), trust) for name, item in items}
        return [_argument(item, inner, f"{key}[{index}]", trust) for index, item in enumerate(value)]
    if value == MISSING:
        return value  # whoever planned the root reports all of these together
    return typed(value, annotation, key, show=not is_secret(key))


def _carried_out(plan: Plan) -> Any:
    arguments = {name: _made(value) for name, value in plan.arguments.items()}
    for name, value in arguments.items():
        annotation = plan.annotations[name]
        if isinstance(plan.arguments[name], Plan) and not fits(annotation, value):
            where = _under(plan.key, name)
            raise ConfigError(
                f"{where} builds a {type(value).__name__}; it must be {expected_name(annotation)}"
            )
    try:
        return plan.target(**arguments)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{plan.key}: {_one_line(error)}" if plan.key else _one_line(error)) from error


def _made(value: Any) -> Any:
    if isinstance(value, Plan):
        return _carried_out(value)
    if isinstance(value, dict):
        return {name: _made(item) for name, item in cast("dict[str, Any]", value).items()}
    if type(value) is list:
        return [_made(item) for item in cast("list[Any]", value)]
    return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _under(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
