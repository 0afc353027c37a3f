import asyncio
from collections.abc import Awaitable
from typing import Any

import httpx
import pytest
import tinker
from tinker.lib.retryable_exception import RetryableException

from agl.errors import AglError, ConfigError
from agl.inference.tinker_service import TinkerService, TinkerServiceError

KEY = "tml-secret"
REQUEST = httpx.Request("POST", "http://127.0.0.1/api/v1/asample")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> TinkerService:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    return TinkerService(connect_seconds=1.0, timeout_seconds=0.05)


async def raising(error: Exception) -> None:
    raise error


def refused(status: int, text: str) -> tinker.APIStatusError:
    return tinker.APIStatusError(text, response=httpx.Response(status, request=REQUEST), body=None)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (refused(429, "too many\nand more"), 429, "no sample: too many"),
        (tinker.APIConnectionError(request=REQUEST), 502, "no sample: Connection error"),
        (RetryableException("Promise expired"), 502, "no sample: Promise expired"),
        (RuntimeError("A previous request failed"), 502, "no sample: A previous request failed"),
        (ValueError(""), 502, "no sample: ValueError"),
        (refused(401, f"no such key {KEY}"), 401, "no sample: no such key ***"),
    ],
)
async def test_what_the_sdk_raises_is_one_line_with_a_status_and_without_the_key(
    service: TinkerService, error: Exception, status: int, words: str
) -> None:
    with pytest.raises(TinkerServiceError) as caught:
        await service.answer("no sample", lambda: raising(error))
    assert caught.value.status == status
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)


async def test_an_answer_is_waited_for_so_long_and_no_longer(service: TinkerService) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with pytest.raises(TinkerServiceError, match=r"no sample: no answer within 0\.05 s") as caught:
        await service.answer("no sample", lambda: never)
    assert caught.value.status == 504
    assert never.cancelled()


async def test_whoever_gives_up_cancels_the_request(service: TinkerService) -> None:
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    patient = TinkerService(connect_seconds=1.0, timeout_seconds=60.0)
    waiting = asyncio.ensure_future(patient.answer("no sample", lambda: asked))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asked.cancelled()


async def test_a_mistake_of_our_own_is_not_taken_for_the_services(service: TinkerService) -> None:
    def ask() -> Awaitable[Any]:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        await service.answer("no sample", ask)


@pytest.mark.parametrize("key", [None, "", "  "])
async def test_without_a_key_there_is_no_session(
    service: TinkerService, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.delenv("TINKER_CREDENTIAL_CMD", raising=False)
    if key is None:
        monkeypatch.delenv("TINKER_API_KEY")
    else:
        monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(ConfigError, match="TINKER_API_KEY"):
        await service.__aenter__()
    with pytest.raises(AglError, match="not open"):
        _ = service.client
