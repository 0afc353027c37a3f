"""Values: whether a plain value or a built object is what an annotation asks for.

Stricter than pydantic's default: text is not a number, 8.0 is not an int, true is not 1; an int will do for a float
and a list for a tuple.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import get_protocol_members, is_protocol

from agl.agents.load import load_object
from agl.errors import ConfigError
from agl.types.record import Json

_ABSENT = object()
CALLABLE: Any = get_origin(Callable[..., Any])


def typed(value: Json, annotation: Any, key: str, *, show: bool) -> Any:
    """Return the plain value as the annotation's type.

    Args:
        value: plain, without nodes.
        annotation: of the parameter; a Callable takes ``pkg.mod:name`` or ``file.py:name``.
        key: for messages.
        show: whether a message may repeat the value.

    Raises:
        ConfigError: it is not of that type.
    """
    if annotation is Any or annotation is object:
        return value
    arms = _arms(annotation)
    if isinstance(value, str) and any(_is_callable(arm) for arm in arms):
        return _function(value, key)
    plain = [arm for arm in arms if _is_plain(arm)]
    if not plain:
        raise ConfigError(f"{key} must be {expected_name(annotation)}, built by a node with a _target_")
    written = json.dumps(value)
    refusals: list[ValidationError] = []
    for arm in plain:
        adapter: TypeAdapter[Any] = TypeAdapter(arm)
        try:
            return adapter.validate_json(written, strict=True)
        except ValidationError as error:
            refusals.append(error)
    reasons = [_reason(error) for error in refusals]
    reasons += [f"a {_name(arm)} with a _target_" for arm in arms if arm not in plain]
    shown = textwrap.shorten(written, 80) if show else "what was given"
    raise ConfigError(f"{key} is {shown}: {' or '.join(reasons)}") from refusals[0]


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"at {place}, {message}" if place else message


def _function(reference: str, key: str) -> Any:
    try:
        found = load_object(reference)
    except (ConfigError, ImportError, OSError) as error:
        raise ConfigError(f"{key}: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}: {reference} is a {type(found).__name__} and not a function")
    return found


def _arms(annotation: Any) -> list[Any]:
    """The members of a union, Annotated looked through; a single annotation is its own only member."""
    if get_origin(annotation) is Annotated and get_origin(get_args(annotation)[0]) in (Union, UnionType):
        annotation = get_args(annotation)[0]
    return list(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _base(annotation: Any) -> Any:
    return get_origin(annotation) or annotation


def _is_callable(annotation: Any) -> bool:
    return _base(annotation) is CALLABLE


def _is_plain(annotation: Any) -> bool:
    """Whether YAML can write a value of it: not for classes that must be built, dataclasses among them."""
    if inspect.isclass(annotation) and is_dataclass(annotation) and not issubclass(annotation, BaseModel):
        return False
    if _is_callable(annotation):
        return False
    try:
        TypeAdapter(annotation)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return False
    return True


def expected_name(annotation: Any) -> str:
    """Return how a message names what an annotation asks for: ``Learner or null``."""
    names = [_name(arm) for arm in _arms(annotation)]
    return " or ".join(names)


def _name(annotation: Any) -> str:
    if annotation is NoneType:
        return "null"
    if get_origin(annotation) is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    base = _base(annotation)
    return str(base.__name__) if inspect.isclass(base) else str(annotation)


def item_annotation(annotation: Any) -> Any:
    """Return the annotation of a container's items: X of ``list[X]``, V of ``dict[K, V]``; Any when it does not say."""
    for arm in _arms(annotation):
        origin, arguments = get_origin(arm), get_args(arm)
        if inspect.isclass(origin) and arguments:
            if issubclass(origin, Mapping):
                return arguments[1]
            if issubclass(origin, Iterable):
                return arguments[0]
    return Any


def built_by(target: type, annotation: Any) -> bool:
    """Tell whether a class can build what the annotation asks for, as far as the class alone shows."""
    return any(_class_fits(target, arm) for arm in _arms(annotation))


def _class_fits(target: type, annotation: Any) -> bool:
    base = _base(annotation)
    if base is Annotated:
        return _class_fits(target, get_args(annotation)[0])
    if base is Any or not inspect.isclass(base):
        return base is not Literal
    if is_protocol(base):
        methods = [
            m for m in get_protocol_members(base) if inspect.isroutine(inspect.getattr_static(base, m, None))
        ]
        return all(inspect.getattr_static(target, name, _ABSENT) is not _ABSENT for name in methods)
    return issubclass(target, base)


def fits(annotation: Any, value: object) -> bool:
    """Tell whether a built object is what the annotation asks for; a protocol asks for its members."""
    return any(_object_fits(arm, value) for arm in _arms(annotation))


def _object_fits(annotation: Any, value: object) -> bool:
    base = _base(annotation)
    if base is Annotated:
        return _object_fits(get_args(annotation)[0], value)
    if base is Literal:
        return value in get_args(annotation)
    if base is CALLABLE:
        return callable(value)
    if base is Any or not inspect.isclass(base):
        return True
    if is_protocol(base):
        names = get_protocol_members(base)
        return all(inspect.getattr_static(value, name, _ABSENT) is not _ABSENT for name in names)
    return isinstance(value, base)
