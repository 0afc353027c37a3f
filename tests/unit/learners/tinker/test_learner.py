from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agl.errors import AglError, ConfigError
from agl.learners.base import Learner, ReadsChats
from agl.learners.tinker.learner import TinkerLearner
from agl.types.policy import Lora, Policy
from agl.types.sample import LikelihoodLoss, PolicyLoss

NAME = "organisation/model"


def test_it_is_a_learner_that_reads_chats_and_needs_no_model_here() -> None:
    learner = TinkerLearner(Policy(path=NAME))
    assert isinstance(learner, Learner)
    assert isinstance(learner, ReadsChats)
    assert learner.policy_version == 0


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        (Policy(path=NAME), {"rank": 0}, r"learner\.rank=0"),
        (Policy(path=NAME), {"learning_rate": 0.0}, r"learner\.learning_rate"),
        (Policy(path=NAME), {"weights_ttl_seconds": 1}, r"learner\.weights_ttl_seconds=1"),
        (Policy(path=NAME, lora=Lora()), {}, r"policy\.lora.*learner\.rank"),
        (Policy(path="/no/such/folder"), {}, r"policy\.path=/no/such/folder does not exist"),
    ],
)
def test_a_bad_setting_is_refused_before_anything_starts(
    policy: Policy, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TinkerLearner(policy, **settings)


def test_a_folder_with_a_tokenizer_and_no_weights_is_enough(policy: Policy, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((Path(policy.path) / name).read_bytes())
    TinkerLearner(replace(policy, path=str(tmp_path)), base_model=NAME)


def test_a_critic_of_the_recipe_is_left_aside_until_values_are_asked_for() -> None:
    learner = TinkerLearner(Policy(path=NAME), critic="head")
    learner.check(PolicyLoss(), needs_values=False)
    learner.check(LikelihoodLoss(), needs_values=False)
    with pytest.raises(ConfigError, match="algorithm=grpo"):
        learner.check(PolicyLoss(), needs_values=True)


async def test_it_must_be_open_to_learn() -> None:
    with pytest.raises(AglError, match="not open"):
        await TinkerLearner(Policy(path=NAME)).update([], PolicyLoss())


async def test_without_a_key_nothing_is_asked_of_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.delenv("TINKER_CREDENTIAL_CMD", raising=False)
    with pytest.raises(ConfigError, match="TINKER_API_KEY"):
        await TinkerLearner(Policy(path=NAME)).__aenter__()
