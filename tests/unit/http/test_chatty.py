"""What is said of every request is not said; what somebody asked for by name is."""

import logging
from collections.abc import Iterator

import pytest

from agl.http.chatty import CHATTY, quieten


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in CHATTY}
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET)
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_requests_are_not_logged_one_by_one_and_warnings_are() -> None:
    quieten()
    assert not logging.getLogger("httpx").isEnabledFor(logging.INFO)
    assert logging.getLogger("httpx").isEnabledFor(logging.WARNING)


def test_a_level_that_was_chosen_stays() -> None:
    logging.getLogger("httpx").setLevel(logging.DEBUG)
    quieten()
    assert logging.getLogger("httpx").level == logging.DEBUG
