"""A learner and an engine that cannot share weights are refused before anything starts, by their settings."""

from __future__ import annotations

import pytest
from fake_engine import CountingEngine
from sampled_batches import ConstantCritic

from agl.algorithms.grpo import GRPO
from agl.errors import ConfigError
from agl.inference.tinker import TinkerEngine
from agl.launch.pairing import check_pair
from agl.learners.tinker.learner import TinkerLearner
from agl.trainer import Trainer
from agl.types import Policy

POLICY = Policy(path="organisation/model")


def test_parts_of_this_machine_and_parts_of_one_service_fit() -> None:
    check_pair(ConstantCritic(), CountingEngine())
    check_pair(TinkerLearner(POLICY), TinkerEngine(POLICY))
    check_pair(TinkerLearner(POLICY, base_model="big"), TinkerEngine(POLICY, base_model="big"))


def test_one_part_of_a_service_is_refused_whichever_it_is() -> None:
    with pytest.raises(
        ConfigError, match=r"^learner leaves the weights to a service \(Tinker's organisation/model\)"
    ):
        check_pair(TinkerLearner(POLICY), CountingEngine())
    with pytest.raises(
        ConfigError, match=r"^inference leaves the weights to a service.*learner has them on this"
    ):
        check_pair(ConstantCritic(), TinkerEngine(POLICY))


def test_two_base_models_or_other_weights_to_begin_with_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"Tinker's big and inference with Tinker's organisation/model.*base_model"
    ):
        check_pair(TinkerLearner(POLICY, base_model="big"), TinkerEngine(POLICY))
    with pytest.raises(ConfigError, match=r"tinker://old.*no inference\.weights while a learner trains"):
        check_pair(TinkerLearner(POLICY), TinkerEngine(POLICY, weights="tinker://old"))


def test_a_trainer_of_such_a_pair_is_not_built() -> None:
    with pytest.raises(ConfigError, match="learner=tinker goes with inference=tinker"):
        Trainer(algorithm=GRPO(), learner=TinkerLearner(POLICY), inference=CountingEngine())
