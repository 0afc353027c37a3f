"""Signatures: the parameters of a class or function, with their annotations evaluated."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, get_type_hints

from agl.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a target."""

    annotation: Any
    required: bool


def parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters that can be given by name; the key ``**`` stands for a parameter that takes any name.

    Raises:
        ConfigError: the target has no signature or takes positional arguments only.
    """
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{target!r} cannot be built from settings: it has no signature") from error
    found: dict[str, Parameter] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found["**"] = Parameter(annotation=Any, required=False)
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise ConfigError(f"{target!r} cannot be built from settings: {name} has no name outside")
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            annotation = _evaluated(target, parameter.annotation)
            found[name] = Parameter(
                annotation=annotation, required=parameter.default is inspect.Parameter.empty
            )
    return found


def _evaluated(target: Callable[..., Any], annotation: Any) -> Any:
    """Evaluate an annotation that is kept as text; Any where it names what is only imported for type checkers."""
    if annotation is inspect.Parameter.empty:
        return Any
    maker = target.__init__ if inspect.isclass(target) else target
    module = (
        sys.modules.get(getattr(maker, "__module__", None) or target.__module__)
        or sys.modules[target.__module__]
    )
    holder = SimpleNamespace(__annotations__={"value": annotation})
    try:
        return get_type_hints(holder, globalns=vars(module), include_extras=True)["value"]
    except NameError:
        return Any
