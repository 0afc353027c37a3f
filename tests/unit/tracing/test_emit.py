"""Rewards, messages, objects and exceptions end on the attempt; outside of one nothing happens."""

import json

import pytest

from agl import emit_exception, emit_message, emit_object, emit_reward
from agl.tracing.reward import Reward
from agl.tracing.tracer import Tracer
from agl.types import LLM


async def test_all_rewards_are_kept_in_the_order_of_emission(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a1") as (attempt, _):
        emit_reward(0.1)
        emit_reward({"right": 1.0, "short": 0.5}, primary="right")
        emit_reward(0.3)
    await tracer.flush()
    assert attempt.rewards == [
        Reward(value=0.1),
        Reward(value=1.0, dimensions={"right": 1.0, "short": 0.5}),
        Reward(value=0.3),
    ]
    assert [span.attributes for span in spans.spans if span.name == "agl.reward"] == [
        {"agl.reward.value": 0.1},
        {"agl.reward.value": 1.0, "agl.reward.dimension.right": 1.0, "agl.reward.dimension.short": 0.5},
        {"agl.reward.value": 0.3},
    ]


@pytest.mark.parametrize("value", [float("nan"), True, "1"])
async def test_a_wrong_reward_is_refused_at_once_and_not_recorded(tracer: Tracer, value: object) -> None:
    with tracer.attempt("r1", "a1") as (attempt, _), pytest.raises((TypeError, ValueError)):
        emit_reward(value)  # type: ignore[arg-type]
    assert attempt.rewards == []


async def test_messages_objects_and_exceptions_are_spans(tracer: Tracer, spans) -> None:
    with tracer.attempt("r1", "a1"):
        emit_message("hello", attributes={"turn": 1, "who": {"name": "ann"}})
        emit_object({"hits": [1, 2], "llm": LLM(base_url="http://x", model="m", api_key="sk-secret")})
        try:
            {}["missing"]
        except KeyError as error:
            emit_exception(error)
    await tracer.flush()
    message, object_, exception, _ = spans.spans
    assert message.name == "agl.message"
    assert message.attributes == {"turn": 1, "who": '{"name": "ann"}', "agl.message.body": "hello"}
    assert json.loads(object_.attributes["agl.object.json"])["hits"] == [1, 2]
    assert "sk-secret" not in object_.attributes["agl.object.json"]
    assert exception.status.description == "KeyError: 'missing'"
    assert "Traceback" in exception.events[0].attributes["exception.stacktrace"]


def test_outside_of_an_attempt_nothing_is_recorded_and_input_is_still_checked() -> None:
    emit_reward(1.0)
    emit_message("hello")
    emit_object(object())
    emit_exception(ValueError("x"))
    with pytest.raises(ValueError, match="finite"):
        emit_reward(float("nan"))
    with pytest.raises(TypeError, match="emit_object"):
        emit_message(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="exception"):
        emit_exception("x")  # type: ignore[arg-type]
