"""agl store backup: a whole file or none."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from command_line import Agl

from agl.cli.store.backup import appearing_whole, download
from agl.errors import AccessDeniedError, ConfigError, StoreError, StoreUnavailableError
from agl.store.wire import error_body


def test_a_file_appears_only_when_it_is_whole(in_folder: Path) -> None:
    with appearing_whole(Path("copy")) as unfinished:
        unfinished.write_bytes(b"all of it")
        assert not Path("copy").exists()
    assert [path.name for path in in_folder.iterdir()] == ["copy"]
    assert Path("copy").read_bytes() == b"all of it"


def test_what_fails_halfway_leaves_nothing(in_folder: Path) -> None:
    def fail() -> None:
        with appearing_whole(Path("copy")) as unfinished:
            unfinished.write_bytes(b"half")
            raise StoreError("gone")

    with pytest.raises(StoreError, match="gone"):
        fail()
    assert list(in_folder.iterdir()) == []


def test_nothing_is_overwritten(in_folder: Path) -> None:
    Path("copy").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="is there already"), appearing_whole(Path("copy")):
        pass
    Path("copy").unlink()

    def copy() -> None:
        with appearing_whole(Path("copy")) as unfinished:
            unfinished.write_bytes(b"ours")
            Path("copy").write_bytes(b"theirs")

    with pytest.raises(ConfigError, match="by another process"):
        copy()
    assert Path("copy").read_bytes() == b"theirs"
    assert [path.name for path in in_folder.iterdir()] == ["copy"]


def test_a_download_is_written_as_it_comes_and_shows_the_token(in_folder: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url == "http://store:1/v1/backup"
        assert request.headers["authorization"] == "Bearer sesame"
        return httpx.Response(200, content=b"SQLite" * 1000)

    download("http://store:1/", Path("copy"), token="sesame", transport=httpx.MockTransport(answer))
    assert Path("copy").read_bytes() == b"SQLite" * 1000


@pytest.mark.parametrize(
    ("response", "kind", "message"),
    [
        (httpx.Response(401, json=error_body("unauthorized", "no token")), AccessDeniedError, "no token"),
        (httpx.Response(404, text="<html>"), StoreError, "http://store:1 is no store: it answered 404"),
        (httpx.Response(302, json=[]), StoreError, "it answered 302"),
    ],
)
def test_a_refusal_is_the_error_that_it_names(
    in_folder: Path, response: httpx.Response, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        download(
            "http://store:1", Path("copy"), token=None, transport=httpx.MockTransport(lambda _: response)
        )


def test_a_server_that_is_not_there_is_one_line(in_folder: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    with pytest.raises(StoreUnavailableError, match="no backup from http://store:1: connection refused"):
        download("http://store:1", Path("copy"), token=None, transport=httpx.MockTransport(answer))


def test_a_store_without_copies_says_so(agl: Agl, in_folder: Path) -> None:
    code, _, err = agl("store", "backup", "copy", "store=memory")
    assert code in (0, 2), err
