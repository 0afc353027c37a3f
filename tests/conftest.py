"""What every test has: no network in unit tests, calm threads, a folder of its own, a number of examples."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from pytest_socket import disable_socket, enable_socket

# Before anything imports torch: threads that wait must not spin, or tests on few cores take three times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# It keeps the class of sockets that it finds when it is first imported: not in a unit test, where that one is blocked.
with suppress(ImportError):
    import uvloop as uvloop

UNIT = Path(__file__).parent / "unit"

# Examples of each property: few at each change, many with ``--hypothesis-profile=nightly``.
settings.register_profile("quick", max_examples=25, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=1000, deadline=None, print_blob=True, derandomize=False)
settings.load_profile("quick")


def pytest_collection_finish() -> None:
    """What was imported stays: from here on garbage is looked for in what the tests make."""
    gc.freeze()


@pytest.fixture(autouse=True)
def no_sockets_in_unit_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Unit tests open no sockets, but for the pair of Unix sockets by which an event loop wakes itself."""
    if not request.path.is_relative_to(UNIT):
        yield
        return
    disable_socket(allow_unix_socket=True)
    yield
    enable_socket()


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
