"""Errors: exit codes, builtin bases, and what an extra that is not installed says."""

from __future__ import annotations

import pytest

from agl.errors import (
    AglError,
    CheckpointError,
    ConfigError,
    ConflictError,
    InferenceError,
    InvalidRequestError,
    MissingExtraError,
    NotFoundError,
    RunStoppedError,
    StoreChangedError,
    StoreUnavailableError,
    extra_with,
    require_extra,
)


@pytest.mark.parametrize(
    ("kind", "base", "exit_code"),
    [
        (ConfigError, ValueError, 2),
        (CheckpointError, AglError, 2),
        (NotFoundError, LookupError, 1),
        (ConflictError, AglError, 1),
        (InvalidRequestError, ValueError, 1),
        (StoreUnavailableError, ConnectionError, 1),
        (StoreChangedError, StoreUnavailableError, 1),
        (RunStoppedError, AglError, 1),
    ],
)
def test_an_error_is_ours_and_the_builtin_that_callers_expect(
    kind: type[AglError], base: type[Exception], exit_code: int
) -> None:
    assert issubclass(kind, AglError)
    assert issubclass(kind, base)
    assert kind.exit_code == exit_code


def test_a_missing_extra_says_how_to_install_it() -> None:
    with pytest.raises(ImportError) as caught:
        require_extra("The torch learner", "torch", "json", "no_module_of_this_name")
    assert str(caught.value) == 'The torch learner needs the "torch" extra: pip install "agl[torch]"'
    assert isinstance(caught.value, MissingExtraError)
    assert caught.value.exit_code == 2


def test_an_installed_extra_passes() -> None:
    require_extra("JSON", "json", "json", "math")


def test_a_module_of_an_extra_is_known_by_it() -> None:
    assert extra_with("torch.nn") == "torch"
    assert extra_with("peft") == "lora"
    assert extra_with("not_there_at_all") is None


def test_an_inference_error_carries_what_the_agent_is_to_see() -> None:
    error = InferenceError("too long", status=400, body={"error": "x"})
    assert (str(error), error.status, error.body) == ("too long", 400, {"error": "x"})
    assert InferenceError("gone").status == 502
