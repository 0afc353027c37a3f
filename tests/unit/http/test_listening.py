import socket
from typing import cast

import pytest

from agl.http.listening import is_loopback, url_of


class Bound:
    """A listener that has its port."""

    def getsockname(self) -> tuple[str, int]:
        return ("", 4747)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:4747"),
        ("::1", "http://[::1]:4747"),
        ("0.0.0.0", f"http://{socket.gethostname()}:4747"),
    ],
)
def test_the_url_is_one_that_others_can_use(host: str, url: str) -> None:
    assert url_of(host, cast("socket.socket", Bound())) == url


def test_loopback_names() -> None:
    assert [
        is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org", "")
    ] == [
        *(True, True, True),
        *(False, False, False),
    ]
