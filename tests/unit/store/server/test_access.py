from __future__ import annotations

import pytest

from agl.store.server.access import Gate
from agl.store.server.operation import Call, Operation
from agl.store.server.refusal import RefusedError
from agl.types.tokens import scoped_token

TOKEN = "admin-token"
SCOPED = scoped_token(TOKEN, "ro", "at")
OWN = {b"host": b"127.0.0.1:4747"}


async def run(call: Call) -> object:
    return call


async def own(call: Call, attempt: tuple[str, str]) -> bool:
    return bool(call) and bool(attempt)


READ = Operation(method="GET", path="/r", run=run, summary="", answers=None)
WRITE = Operation(method="POST", path="/w", run=run, summary="", answers=None, writes=True)
HEALTH = Operation(method="GET", path="/h", run=run, summary="", answers=None, needs_token=False)
OF_ATTEMPT = Operation(method="GET", path="/a", run=run, summary="", answers=None, access=own)


def gate(*, token: str | None = None, read_only: bool = False, hosts: tuple[str, ...] = ()) -> Gate:
    return Gate(token=token, read_only=read_only, hosts=hosts)


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + token.encode("latin-1")}


def refused(gate: Gate, operation: Operation, headers: dict[bytes, bytes]) -> str:
    with pytest.raises(RefusedError) as caught:
        gate.admit(operation, headers, ("127.0.0.1", 4747))
    return caught.value.code


def test_the_admin_token_opens_everything() -> None:
    for operation in (READ, WRITE, HEALTH, OF_ATTEMPT):
        assert gate(token=TOKEN).admit(operation, bearer(TOKEN), None) is None
    assert gate(token=TOKEN).admit(READ, {b"authorization": b"bearer  admin-token "}, None) is None


@pytest.mark.parametrize(
    "headers",
    [{}, bearer("wrong"), bearer(""), bearer("\xe4"), {b"authorization": b"Basic YWRtaW4tdG9rZW4="},
     {b"authorization": b"admin-token"}, bearer(scoped_token("another", "ro", "at"))],
)  # fmt: skip
def test_a_missing_or_wrong_token_is_unauthorized(headers: dict[bytes, bytes]) -> None:
    for operation in (READ, WRITE, OF_ATTEMPT):
        assert refused(gate(token=TOKEN), operation, headers) == "unauthorized"


def test_the_health_needs_no_token() -> None:
    assert gate(token=TOKEN).admit(HEALTH, {}, None) is None


def test_a_scoped_token_opens_its_attempt_alone() -> None:
    assert gate(token=TOKEN).admit(OF_ATTEMPT, bearer(SCOPED), None) == ("ro", "at")
    assert refused(gate(token=TOKEN), READ, bearer(SCOPED)) == "forbidden"
    assert refused(gate(token=TOKEN), WRITE, bearer(SCOPED)) == "forbidden"


def test_a_read_only_server_refuses_writes() -> None:
    assert refused(gate(read_only=True), WRITE, OWN) == "forbidden"
    assert refused(gate(read_only=True, token=TOKEN), WRITE, bearer(TOKEN)) == "forbidden"
    assert gate(read_only=True).admit(READ, OWN, None) is None


@pytest.mark.parametrize(
    "host", [b"127.0.0.1:4747", b"127.0.0.1", b"localhost:1", b"LOCALHOST", b"[::1]:4747", b"[::1]", b"127.9.9.9",
             b"agl.localhost", b"my-box:4747"]
)  # fmt: skip
def test_without_a_token_this_machine_is_asked_by_its_own_names(host: bytes) -> None:
    assert gate(hosts=("My-Box",)).admit(WRITE, {b"host": host}, ("127.0.0.1", 4747)) is None


def test_the_address_that_it_listens_on_is_a_name_of_the_server() -> None:
    assert gate().admit(WRITE, {b"host": b"10.0.0.7:4747"}, ("10.0.0.7", 4747)) is None
    assert gate().admit(WRITE, {}, ("10.0.0.7", 4747)) is None


@pytest.mark.parametrize(
    "host", [b"evil.example", b"evil.example:4747", b"127.0.0.1.evil.example", b"", b"10.0.0.8"]
)
def test_a_foreign_name_that_resolves_here_is_refused(host: bytes) -> None:
    for operation in (READ, WRITE, HEALTH):
        assert refused(gate(), operation, {b"host": host}) == "forbidden"


@pytest.mark.parametrize(
    "headers",
    [
        {b"origin": b"https://evil.example"},
        {b"origin": b"null"},
        {b"origin": b"http://127.0.0.1:8080"},
        {b"sec-fetch-site": b"cross-site"},
        {b"sec-fetch-site": b"same-site"},
    ],
)
def test_a_page_of_another_site_may_not_write(headers: dict[bytes, bytes]) -> None:
    assert refused(gate(), WRITE, OWN | headers) == "forbidden"
    assert gate().admit(READ, OWN | headers, None) is None


def test_a_page_of_the_server_itself_may_write() -> None:
    headers = OWN | {b"origin": b"http://127.0.0.1:4747", b"sec-fetch-site": b"same-origin"}
    assert gate().admit(WRITE, headers, None) is None
