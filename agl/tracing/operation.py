"""operation: record a piece of the agent's work as a span, with what went in and what came out.

As a decorator of a sync or async function, or as a (sync or async) context manager. Outside of an attempt it does
nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from opentelemetry.trace import Span

from agl.tracing.emit import Attributes, otel_attributes
from agl.tracing.outside import attempt_here
from agl.tracing.plain import json_text
from agl.types.attributes import OPERATION_INPUT, OPERATION_OUTPUT

P = ParamSpec("P")
R = TypeVar("R")

NOT_RECORDED = object()
"""Stands for an input that was not given; None is a value."""


class Operation:
    """One named piece of work: ``with operation("search", input=query) as work: work.record_output(hits)``."""

    def __init__(
        self,
        name: str,
        *,
        input: object = NOT_RECORDED,  # noqa: A002 - the word its users say
        attributes: Attributes | None = None,
    ) -> None:
        self._name = name
        self._input = input
        self._attributes = attributes
        self._span: Span | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        attempt = attempt_here()
        if attempt is not None:
            attributes = otel_attributes(self._attributes)
            if self._input is not NOT_RECORDED:
                attributes[OPERATION_INPUT] = json_text(self._input)
            opened = attempt.tracer.start_as_current_span(self._name, attributes=attributes)
            self._span = self._open.enter_context(opened)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)
        self._span = None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def record_output(self, value: object) -> None:
        """Record what came out, as JSON."""
        if self._span is not None:
            self._span.set_attribute(OPERATION_OUTPUT, json_text(value))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate: every call of ``function`` is recorded under this name."""
        return _recorded(function, self._name, self._attributes)


@overload
def operation(name: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def operation(name: str, /, *, input: object = ..., attributes: Attributes | None = None) -> Operation: ...
def operation(
    name: str | Callable[..., Any],
    /,
    *,
    input: object = NOT_RECORDED,  # noqa: A002 - the word its users say
    attributes: Attributes | None = None,
) -> Operation | Callable[..., Any]:
    """Record work as a span.

    Write ``@operation``, ``@operation("name")`` or ``with operation("name", input=...) as work:``.

    Args:
        name: of the span; a function decorated without a name gives its own.
        input: what went in; a decorated function's arguments are recorded by themselves.
        attributes: further facts for the span.
    """
    if isinstance(name, str):
        return Operation(name, input=input, attributes=attributes)
    return _recorded(name, getattr(name, "__qualname__", type(name).__name__), None)


def _recorded(function: Callable[P, R], name: str, attributes: Attributes | None) -> Callable[P, R]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"operation cannot decorate the generator {name}: use `with operation({name!r}):` inside of it instead"
        )
    signature = inspect.signature(function)

    def _opened(*args: P.args, **kwargs: P.kwargs) -> Operation:
        if attempt_here() is None:
            return Operation(name)
        return Operation(name, input=_arguments(signature, args, kwargs), attributes=attributes)

    if inspect.iscoroutinefunction(function):
        run = cast("Callable[P, Coroutine[Any, Any, Any]]", function)

        @functools.wraps(function)
        async def _call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _opened(*args, **kwargs) as work:
                result = await run(*args, **kwargs)
                work.record_output(result)
                return result

        return cast("Callable[P, R]", _call_async)

    @functools.wraps(function)
    def _call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _opened(*args, **kwargs) as work:
            result = function(*args, **kwargs)
            work.record_output(result)
            return result

    return _call


def _arguments(signature: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Arguments by parameter name, without self; as they came when they do not fit (the call itself will say so)."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return {"args": args, "kwargs": kwargs}
    return {name: value for name, value in bound.arguments.items() if name not in ("self", "cls")}
