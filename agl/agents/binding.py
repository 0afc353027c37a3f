"""What a user's function is called with: its parameters by name, its settings checked before anything runs."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from agl.agents.base import MissingResourceError
from agl.errors import ConfigError
from agl.types import LLM, PromptTemplate, Resource

_BY_KIND: Mapping[str, type] = {"llm": LLM, "prompt_template": PromptTemplate}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class BoundFunction:
    """A user's function with its settings, ready to be called by name.

    Args:
        function: sync or async.
        given: the names that each call provides.
        settings: values for further parameters.
        name: for messages; by default the function's own.

    Raises:
        ConfigError: the function cannot be called by name, or a setting is unknown, reserved or of the wrong type.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        given: Sequence[str],
        settings: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        parameters = check_function(function)
        self.function = cast("Callable[..., Any]", function)
        self.name = name or function_name(function)
        self.is_async = _is_async(function)
        self._given = given
        self._open = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())
        self._parameters = {name: item for name, item in parameters.items() if item.kind in _NAMED}
        self._settings = self._checked(dict(settings or {}))

    def takes(self, name: str) -> bool:
        """Whether the function has that parameter."""
        return name in self._parameters

    @property
    def required(self) -> list[str]:
        """The parameters that have neither a default nor a setting."""
        return [
            name
            for name, item in self._parameters.items()
            if item.default is inspect.Parameter.empty and name not in self._settings
        ]

    def arguments(self, given: Mapping[str, object], resources: Mapping[str, Resource]) -> dict[str, object]:
        """Return the arguments of one call.

        Raises:
            MissingResourceError: a parameter is neither given, set, a resource nor optional.
        """
        arguments: dict[str, object] = dict(self._settings)
        for name, parameter in self._parameters.items():
            if name in given:
                arguments[name] = given[name]
            elif name not in arguments:
                found, value = _resource(name, resources)
                if found:
                    arguments[name] = value
                elif parameter.default is inspect.Parameter.empty:
                    raise MissingResourceError(
                        f"{self.name} needs a resource {name!r}; this rollout has "
                        f"{', '.join(resources) or 'none'}. Publish it, or give the parameter a default or a setting"
                    )
        return arguments

    def _checked(self, settings: dict[str, Any]) -> dict[str, object]:
        hints = _hints(self.function)
        checked: dict[str, object] = {}
        for name, value in settings.items():
            if name in self._given:
                raise ConfigError(
                    f"settings.{name} cannot be set: {self.name} gets {name!r} from each rollout"
                )
            if name not in self._parameters and not self._open:
                raise ConfigError(f"settings.{name} is not a parameter of {self.name}{self._nearest(name)}")
            checked[name] = _typed(f"settings.{name}", value, hints.get(name))
        return checked

    def _nearest(self, name: str) -> str:
        settable = [known for known in self._parameters if known not in self._given]
        near = difflib.get_close_matches(name, settable, 1)
        if near:
            return f"; did you mean settings.{near[0]}?"
        return f"; it has {', '.join(settable)}" if settable else "; it has none to set"


def check_function(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function that can be run as user code.

    Raises:
        ConfigError: a generator, a class, not callable, or a parameter that cannot be given by name.
    """
    name = function_name(function)
    if not callable(function) or inspect.isclass(function):
        raise ConfigError(f"{name} must be a function")
    inner = _plain_function(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(
            f"{name} is a generator: it yields, and a rollout needs one result. Return the reward, "
            "and use emit_reward, emit_message or emit_object for what comes on the way"
        )
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise ConfigError(
            f"{name} does not say what parameters it takes: wrap it in a function of your own"
        ) from error
    for parameter in parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"{name} takes {parameter.name!r} by position only; remove the / from its parameters"
            )
    return parameters


def function_name(function: object) -> str:
    """What a function is called in messages."""
    inner = _plain_function(function)
    return str(getattr(inner, "__qualname__", None) or type(function).__qualname__)


def _plain_function(function: object) -> object:
    """The function inside of partials and callable objects."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = cast("Any", function).func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__ if callable(function) else function


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_plain_function(function))


def _hints(function: object) -> dict[str, Any]:
    """Annotations by parameter; none where they name what cannot be found at run time (imports for type checkers)."""
    try:
        return get_type_hints(_plain_function(function), include_extras=True)
    except (NameError, TypeError):
        return {}


def _typed(key: str, value: object, hint: Any) -> object:
    if hint is None or hint is Any:
        return value
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f".{part}" for part in first["loc"] if isinstance(part, str))
        raise ConfigError(
            f"{key}={value!r} does not fit: {first['msg']}{f' at {place}' if place else ''}"
        ) from error
    except PydanticUserError:
        return value  # an annotation that pydantic knows no check for, such as a class of the user's own


def _resource(name: str, resources: Mapping[str, Resource]) -> tuple[bool, Resource]:
    """Whether there is such a resource, and the resource."""
    if name in resources:
        return True, resources[name]
    kind = _BY_KIND.get(name)
    of_kind = [value for value in resources.values() if kind is not None and isinstance(value, kind)]
    return (True, of_kind[0]) if len(of_kind) == 1 else (False, None)
