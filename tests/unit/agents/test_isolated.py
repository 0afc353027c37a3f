"""How an exception leaves an isolated process."""

import pickle

import pytest

from agl.agents.isolated import failed


class OddError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_an_exception_travels_itself_with_where_it_was_raised() -> None:
    answer = failed(raised(KeyError("k")))
    assert answer.error is not None
    assert repr(pickle.loads(answer.error)) == "KeyError('k')"
    assert (answer.kind, answer.message) == ("KeyError", "'k'")
    assert "test_isolated.py" in answer.traceback


def test_one_that_cannot_be_rebuilt_travels_in_words() -> None:
    for error in (OddError("a", "b"), ValueError(lambda: None)):
        answer = failed(raised(error))
        assert answer.error is None
        assert answer.kind == type(error).__name__
        assert answer.message == str(error)
    assert failed(raised(MuteError())).message == "(its message cannot be shown: RuntimeError)"
