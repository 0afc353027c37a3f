from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agl.errors import ConfigError, InferenceError
from agl.inference.base import Engine
from agl.inference.tinker import TinkerEngine, answer_of
from agl.types.policy import Policy
from agl.types.weights import PolicyWeights

NAME = "organisation/model"
ENDS = frozenset({2})


def sequence(tokens: list[int], logprobs: list[float] | None = None, reason: str = "length") -> Any:
    return SimpleNamespace(
        tokens=tokens,
        logprobs=[-0.5 * token for token in tokens] if logprobs is None else logprobs,
        stop_reason=reason,
    )


def test_it_is_a_trainable_engine_under_the_policys_name() -> None:
    engine = TinkerEngine(Policy(path=NAME, name="mine"))
    assert isinstance(engine, Engine)
    assert (engine.model, engine.policy_version, engine.trainable) == ("mine", 0, True)


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        (Policy(path=NAME), {"timeout_seconds": 0.0}, r"inference\.timeout_seconds=0\.0"),
        (Policy(path=NAME), {"connect_seconds": -1.0}, r"inference\.connect_seconds=-1\.0"),
        (
            Policy(path=NAME),
            {"weights": "/my/weights"},
            r"inference\.weights=/my/weights must begin with tinker://",
        ),
        (Policy(path="./nowhere"), {}, r"policy\.path=\./nowhere does not exist"),
    ],
)
def test_a_bad_setting_is_refused_before_anything_starts(
    policy: Policy, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TinkerEngine(policy, **settings)


def test_a_folder_needs_its_tokenizer_and_no_weights(policy_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer"):
        TinkerEngine(Policy(path=str(tmp_path)))
    for file in policy_folder.iterdir():
        if file.suffix != ".safetensors":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    TinkerEngine(Policy(path=str(tmp_path)), base_model=NAME)


async def test_it_must_be_open_to_answer() -> None:
    engine = TinkerEngine(Policy(path=NAME))
    with pytest.raises(InferenceError, match="closed") as caught:
        await engine.complete_chat({"messages": []})
    assert caught.value.status == 503
    with pytest.raises(InferenceError, match="closed"):
        await engine.load_weights(PolicyWeights(policy_version=1, remote="tinker://a/sampler_weights/b"))


def test_an_answer_ends_with_its_first_end_token_whatever_the_service_sampled_on() -> None:
    answer = answer_of([7], sequence([5, 2, 6, 2]), ENDS, None)
    assert (answer.prompt_ids, answer.token_ids, answer.logprobs) == ([7], [5, 2], [-2.5, -1.0])
    assert answer.finish_reason == "stop"


def test_an_answer_ends_with_the_token_that_completes_a_stop_string() -> None:
    answer = answer_of([7], sequence([5, 6, 8, 2], reason="stop"), ENDS, lambda ids: list(ids) == [5, 6])
    assert (answer.token_ids, answer.finish_reason) == ([5, 6], "stop")


def test_an_answer_that_does_not_end_has_the_services_reason() -> None:
    answer = answer_of([7], sequence([5, 6]), ENDS, lambda _: False)
    assert (answer.token_ids, answer.finish_reason) == ([5, 6], "length")


def test_logprobs_that_do_not_fit_the_tokens_fail_the_call() -> None:
    with pytest.raises(InferenceError, match="sent 1 logprobs for 2 tokens") as caught:
        answer_of([7], sequence([5, 6], logprobs=[-0.5]), ENDS, None)
    assert caught.value.status == 502
