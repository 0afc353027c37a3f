"""Good rollouts of other runs, by their recorded ids where these are the policy's own, else by their messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_learner import ChatLearner
from chat_tokens import chat_tokens, masked_texts
from recorded_spans import call_span
from run_contexts import context_of
from sampled_batches import ConstantCritic

from agl.adapters.trace import TracerTraceToTriplet
from agl.algorithms.tuning.past_runs import examples_of_earlier_stages, examples_of_stores
from agl.algorithms.tuning.settings import TuningSettings
from agl.errors import ConfigError
from agl.store.base import LightningStore
from agl.store.sqlite import InMemoryLightningStore, SqliteLightningStore
from agl.types import Mode, RolloutRequest, Span
from agl.types import attributes as key

CHAT = chat_tokens()
ASKED = [{"role": "user", "content": "1+1?"}]


def encoded(text: str) -> list[int]:
    return CHAT.tokenizer.encode(text)


PROMPT = encoded("<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n")


def call(
    answer: str, *, ids: Sequence[int] | None = None, says: str | None = None, **attributes: Any
) -> Span:
    """A call that recorded these ids and these words, by default of one answer."""
    message = {"role": "assistant", "content": answer if says is None else says}
    return call_span(
        1,
        PROMPT,
        encoded(f"{answer}<|im_end|>") if ids is None else ids,
        **{key.INPUT_MESSAGES: json.dumps(ASKED), key.OUTPUT_MESSAGES: json.dumps([message])},
        **attributes,
    )


def without_ids(answer: str) -> Span:
    span = call(answer)
    kept = {name: value for name, value in span.attributes.items() if not name.endswith("_token_ids")}
    return span.model_copy(update={"attributes": {**kept, key.MISSING_IDS_CAUSE: "no_token_ids"}})


async def record(
    store: LightningStore,
    name: str,
    reward: float | None,
    span: Span,
    *,
    run_id: str = "past",
    mode: Mode = "train",
    **metadata: Any,
) -> None:
    """Let a rollout end with this reward, having made this call."""
    await store.add_run(name=run_id, run_id=run_id)
    request = RolloutRequest(
        task={"q": name[0]}, rollout_id=name, run_id=run_id, mode=mode, metadata=metadata
    )
    started = await store.start_rollout(request, worker_id="w")
    attempt_id = started.attempt.attempt_id
    trace_id = attempt_id.rjust(32, "0")[-32:]
    where = {"rollout_id": name, "attempt_id": attempt_id, "sequence_id": None, "trace_id": trace_id}
    await store.add_many_spans([span.model_copy(update=where)])
    await store.update_attempt(name, attempt_id, status="succeeded", reward=reward)


@pytest.fixture
async def past(tmp_path: Path) -> str:
    file = str(tmp_path / "store.sqlite")
    async with SqliteLightningStore(file) as store:
        await record(store, "a1", 1.0, call("2"))
        await record(store, "a2", 0.2, call("3"))
        await record(store, "a3", None, call("4"))
        await record(store, "b1", 1.0, call("x", ids=[7, 8, 9], says="2"))  # another policy's ids
        await record(store, "b2", 1.0, without_ids("2"))
        await record(store, "c1", 1.0, call("2"), mode="val")
        await record(store, "d1", 1.0, call("2"), run_id="other")
        await record(
            store, "e1", None, call("rewrite it"), optimizer=True
        )  # a search's question is no rollout
        await record(store, "e2", 1.0, call("2"), abandoned=True)  # and this one was run again
    return file


async def read(
    past: str, *, learner: Any = None, min_reward: float | None = None, **settings: Any
) -> tuple[dict[str, list[str]], Counter[str]]:
    """What is learned of each rollout, and what was left out."""
    examples, left_out = await examples_of_stores(
        TuningSettings(stores=(past,), **settings),
        TracerTraceToTriplet(),
        learner or ChatLearner(),
        min_reward=min_reward,
    )
    texts = {
        one.example_id.removeprefix(f"{past}#"): [
            text for sequence in one.trajectories for text in masked_texts(sequence, CHAT)
        ]
        for one in examples
    }
    return texts, left_out


async def test_recorded_ids_are_learned_as_they_are_and_those_of_another_policy_are_left_out(
    past: str,
) -> None:
    texts, left_out = await read(past, store_tokens="record", min_reward=1.0)
    assert texts == {"a1": ["2<|im_end|>"], "d1": ["2<|im_end|>"]}
    assert left_out == Counter(without_reward=1, below_reward=1, another_tokenizer=1, no_token_ids=1)


async def test_where_ids_are_missing_or_anothers_the_words_are_written_by_the_policys_template(
    past: str,
) -> None:
    texts, left_out = await read(past)
    assert texts == {
        "a1": ["2<|im_end|>"],
        "a2": ["3<|im_end|>"],
        "b1": ["2<|im_end|>"],
        "b2": ["2<|im_end|>"],
        "d1": ["2<|im_end|>"],
    }
    assert left_out == Counter(without_reward=1)


async def test_the_template_can_be_used_for_all(past: str) -> None:
    texts, _ = await read(past, store_tokens="template", store_run_id="past", min_reward=0.5)
    assert texts == {"a1": ["2<|im_end|>"], "b1": ["2<|im_end|>"], "b2": ["2<|im_end|>"]}
    with pytest.raises(ConfigError, match="store_tokens=template needs a learner"):
        await read(past, store_tokens="template", learner=ConstantCritic())


async def test_held_out_rollouts_are_never_learned_from(past: str) -> None:
    texts, _ = await read(past)
    assert "c1" not in texts


async def test_rollouts_of_one_task_are_one_group_where_none_was_recorded(past: str) -> None:
    examples, _ = await examples_of_stores(
        TuningSettings(stores=(past,)), TracerTraceToTriplet(), ChatLearner(), min_reward=None
    )
    groups = {one.example_id.removeprefix(f"{past}#"): one.group_id for one in examples}
    assert groups["a1"] == groups["a2"] != groups["b1"]


async def test_a_learner_without_a_tokenizer_takes_the_ids_unchecked(past: str) -> None:
    texts, left_out = await read(past, learner=ConstantCritic(), min_reward=1.0)
    assert sorted(texts) == ["a1", "b1", "d1"]
    assert left_out["no_token_ids"] == 1


async def test_the_adapters_agents_and_longest_sequence_apply(past: str) -> None:
    settings, learner = TuningSettings(stores=(past,)), ChatLearner()
    for adapter in (TracerTraceToTriplet(agents=["nobody"]), TracerTraceToTriplet(max_tokens=5)):
        examples, left_out = await examples_of_stores(settings, adapter, learner)
        assert not examples
        assert left_out.total() == 6


async def test_the_good_rollouts_of_earlier_stages_are_read_from_the_runs_own_records(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store:
        await record(store, "run-prompts-a", 1.0, call("2"), run_id="run")
        await record(store, "run-prompts-b", 0.0, call("3"), run_id="run")
        await record(store, "run-prompts-val-c", 1.0, call("2"), run_id="run", mode="val")
        await record(store, "run-prompts-ask-d", 1.0, call("2"), run_id="run", optimizer=True)
        await record(store, "run-prompts-e", 1.0, call("2"), run_id="run", abandoned=True)
        await record(store, "run-sft-f", 1.0, call("2"), run_id="run")
        await record(store, "other-prompts-g", 1.0, call("2"), run_id="other")
        async with context_of(store, tmp_path, lambda _: {}) as (context, *_):
            stage = replace(context, stage="sft")
            examples, left_out = await examples_of_earlier_stages(
                TuningSettings(group_size=1), stage, ChatLearner(), min_reward=1.0
            )
            assert [one.example_id for one in examples] == ["run#run-prompts-a"]
            assert left_out == Counter(below_reward=1)
            with pytest.raises(ConfigError, match="earlier_stages=true: the run has no stages"):
                await examples_of_earlier_stages(
                    TuningSettings(group_size=1), context, ChatLearner(), min_reward=1.0
                )


async def test_a_replay_of_a_rollout_is_not_learned_a_second_time(past: str) -> None:
    async with SqliteLightningStore(past) as store:
        await record(store, "replay-1-0", 1.0, call("2"), run_id="replay-1", replay_of="a1")
    texts, left_out = await read(past, store_tokens="record", min_reward=1.0)
    assert sorted(texts) == ["a1", "d1"]
    assert left_out["replay"] == 1


async def test_an_answer_that_reached_its_limit_is_not_learned_by_its_words_either(tmp_path: Path) -> None:
    file = str(tmp_path / "store.sqlite")
    async with SqliteLightningStore(file) as store:
        await record(store, "a1", 1.0, call("2", **{key.FINISH_REASONS: ["length"]}))
        await record(store, "b1", 1.0, call("2", **{key.FINISH_REASONS: ["stop"]}))
    texts, left_out = await read(file, store_tokens="template")
    assert set(texts) == {"b1"}
    assert left_out == Counter(cut_off=1)
