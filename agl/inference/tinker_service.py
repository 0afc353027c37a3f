"""A session with the Tinker service: opening it, waiting for its answers, and what its errors mean.

The SDK (extra ``tinker``) sends a request again by itself, for minutes, when the connection breaks or the service is
busy or ill; what is raised here has lasted. The key comes from the environment, and the SDK's reports about errors to
its makers are off unless ``TINKER_TELEMETRY`` is set.

Source: tinker 0.38.0 on PyPI.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from difflib import get_close_matches
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from agl.errors import AglError, ConfigError, require_extra

if TYPE_CHECKING:
    import tinker

log = logging.getLogger(__name__)
T = TypeVar("T")
API_KEY = "TINKER_API_KEY"
KEY_COMMAND = "TINKER_CREDENTIAL_CMD"
CLOSE_SECONDS = 1.5
"""The SDK would try for five minutes to end a session that ends by itself; Ctrl-C waits for two sessions."""


class TinkerServiceError(AglError):
    """The service did not do what it was asked for.

    Args:
        message: what, and the service's own words.
        status: the service's HTTP status; 502 where it gave none, 504 when it took too long.
    """

    def __init__(self, message: str, *, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


class TinkerService:
    """One session with the service.

    Args:
        connect_seconds: the longest wait for the session.
        timeout_seconds: the longest wait for any other answer.
    """

    def __init__(self, *, connect_seconds: float, timeout_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._timeout_seconds = timeout_seconds
        self._client: tinker.ServiceClient | None = None

    @property
    def client(self) -> tinker.ServiceClient:
        """The SDK's client of the open session."""
        if self._client is None:
            raise AglError("the session with the Tinker service is not open")
        return self._client

    async def __aenter__(self) -> Self:
        require_extra("the Tinker service", "tinker", "tinker")
        if not (os.environ.get(API_KEY, "").strip() or os.environ.get(KEY_COMMAND)):
            raise ConfigError(f"the Tinker service needs your API key in the environment variable {API_KEY}")
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        self._client = await self._opening("no session with the Tinker service", _new_client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close("success" if error is None else "interrupted")
        except (TimeoutError, *_service_errors()) as failure:
            log.info("the Tinker service was not told that the session has ended: %s", failure)

    async def model_length(self, name: str, *, setting: str) -> int | None:
        """Return the longest sequence in tokens that the service has for a model, None where it does not say.

        Args:
            name: of the model.
            setting: what a refusal names.

        Raises:
            ConfigError: the service does not have the model.
        """
        rest = await self.rest()
        asked = await self.answer(
            "the Tinker service does not say which models it has", rest.get_server_capabilities
        )
        models = {model.model_name: model for model in asked.supported_models if model.model_name}
        if name in models:
            return models[name].max_context_length
        near = get_close_matches(name, models, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(sorted(models)) or 'none'}"
        raise ConfigError(f"{setting}={name}: the Tinker service has no such model; {hint}")

    async def rest(self) -> tinker.RestClient:
        """Return the SDK's client of what needs no session: the service's models, and the files it keeps."""
        return await self._opening("no connection to the Tinker service", _new_rest_client)

    async def answer(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the service's answer.

        Args:
            what: for the message when there is none, such as ``the service did not save the state``.
            ask: calls a method of the SDK and returns its future.

        Raises:
            TinkerServiceError: there is none.
        """
        return await self._within(self._timeout_seconds, what, ask)

    async def _opening(self, what: str, work: Callable[[], T]) -> T:
        """Return what work gives that blocks its thread while it talks to the service.

        Raises:
            ConfigError: the service does not take the key.
            TinkerServiceError: anything else.
        """
        try:
            return await self._within(self._connect_seconds, what, lambda: _in_a_thread(work))
        except TinkerServiceError as error:
            if error.status in (401, 403):
                raise ConfigError(f"{API_KEY}: {error}") from error
            raise

    async def _within(self, seconds: float, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await ask()
        except TimeoutError as error:
            if not limit.expired():
                raise TinkerServiceError(f"{what}: {error or 'timed out'}", status=504) from error
            raise TinkerServiceError(f"{what}: no answer within {seconds:g} s", status=504) from error
        except _service_errors() as error:
            raise _failure(what, error) from error


def _failure(what: str, error: Exception) -> TinkerServiceError:
    """Return the SDK's error in our words, without the key, should the service have sent it back."""
    status = getattr(error, "status_code", None) or 502
    text = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    key = os.environ.get(API_KEY, "").strip()
    if key:
        text = text.replace(key, "***")
    return TinkerServiceError(f"{what}: {text}", status=status)


def _service_errors() -> tuple[type[Exception], ...]:
    """What the SDK raises when the service, or the way to it, fails: it has no base class of its own for all."""
    import httpx
    import tinker
    from tinker.lib.retryable_exception import RetryableException  # an answer that has expired

    return (tinker.TinkerError, RetryableException, httpx.HTTPError, OSError, ValueError, RuntimeError)


def _new_client() -> tinker.ServiceClient:
    import tinker

    client = tinker.ServiceClient()
    assert client.holder  # makes the session
    return client


def _new_rest_client() -> tinker.RestClient:
    import tinker

    # The SDK keeps one client for all that name no URL, whatever the environment says later.
    return tinker.RestClient(base_url=os.environ.get("TINKER_BASE_URL"))


def _in_a_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run work in a thread that ends with the process: the SDK may try for minutes, and nobody waits for it then."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the future
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="agl-tinker", daemon=True).start()
    return asyncio.wrap_future(future)
