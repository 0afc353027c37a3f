from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agl.errors import ConfigError
from agl.inference.batch import DecodingBatch, attention_windows, prefill_chunks
from agl.inference.huggingface import load_model
from agl.inference.rows import Row
from agl.types.policy import Policy

CPU = torch.device("cpu")
END = 2


@pytest.fixture(scope="module")
def model(policy: Policy) -> Any:
    return load_model(policy, dtype=torch.float32, device=CPU)


@pytest.fixture(params=[0, 2**20], ids=["no prefixes", "prefixes"])
def batch(model: Any, request: pytest.FixtureRequest) -> DecodingBatch:
    return DecodingBatch(model, end_ids=frozenset({END}), max_rows=16, max_prefix_bytes=request.param)


def row(
    rng: random.Random, *, temperature: float = 1.0, length: int = 20, max_tokens: int = 12, **settings: Any
) -> Row:
    return Row(
        prompt_ids=[rng.randrange(3, 290) for _ in range(length)],
        max_tokens=max_tokens,
        temperature=temperature,
        draw=random.Random(rng.random()).random,
        **settings,
    )


def sample(batch: DecodingBatch, rows: list[Row], rng: random.Random) -> list[Row]:
    """Sample all rows while some join at random moments; return them in the order in which they finished."""
    waiting, finished = list(rows), []
    while waiting or batch.rows:
        count = min(batch.num_free, rng.randrange(5), len(waiting))
        if count:
            batch.admit(waiting[:count])
            del waiting[:count]
        if batch.rows:
            finished += batch.step()
    return finished


def reference_logprobs(model: Any, row: Row) -> torch.Tensor:
    """Of the row's tokens, by one plain forward pass over the whole sequence."""
    start = len(row.prompt_ids)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*row.prompt_ids, *row.token_ids]]), use_cache=False).logits[0]
    logprobs = (logits / (row.temperature or 1.0)).log_softmax(-1)[start - 1 : -1]
    return logprobs.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0]


def assert_logprobs_are_the_models(model: Any, rows: list[Row]) -> None:
    for row in rows:
        torch.testing.assert_close(
            torch.tensor(row.logprobs), reference_logprobs(model, row), atol=1e-4, rtol=0
        )


def test_logprobs_equal_a_full_forward_pass_whatever_joins_and_leaves(model: Any, batch: DecodingBatch):
    rng = random.Random(0)
    rows = [
        row(
            rng,
            temperature=rng.choice([0.0, 0.6, 1.0, 1.3]),
            length=rng.randrange(1, 90),
            max_tokens=rng.randrange(1, 25),
        )
        for _ in range(60)
    ]
    finished = sample(batch, rows, rng)
    assert set(finished) == set(rows)
    assert {row.finish_reason for row in rows} == {"stop", "length"}
    assert_logprobs_are_the_models(model, rows)


def test_greedy_answers_are_those_of_transformers_generate(model: Any, batch: DecodingBatch):
    rng = random.Random(1)
    rows = [row(rng, temperature=0.0, length=rng.randrange(2, 60), max_tokens=20) for _ in range(12)]
    sample(batch, rows, rng)
    for row_ in rows:
        prompt = torch.tensor([row_.prompt_ids])
        expected = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False
        )
        assert row_.token_ids == expected[0, prompt.shape[1] :].tolist()


def test_equal_prompts_are_prefilled_once_and_answered_each_on_its_own(model: Any, batch: DecodingBatch):
    rng = random.Random(2)
    prompt, other = [rng.randrange(3, 290) for _ in range(30)], row(rng, length=10)
    twins = [
        Row(prompt_ids=prompt, max_tokens=15, temperature=1.0, draw=random.Random(seed).random)
        for seed in range(5)
    ]
    assert count_inputs(model, lambda: batch.admit([twins[0], other, *twins[1:]])) == 29 + 9
    while batch.rows:
        batch.step()
    assert len({tuple(twin.token_ids) for twin in twins}) > 1
    assert_logprobs_are_the_models(model, [*twins, other])


def count_inputs(model: Any, action: Callable[[], None]) -> int:
    """Return how many tokens, padding included, the model computes during the action."""
    sizes: list[int] = []
    handle = model.get_input_embeddings().register_forward_hook(
        lambda _m, args, _o: sizes.append(args[0].numel())
    )
    try:
        action()
    finally:
        handle.remove()
    return sum(sizes)


def test_the_next_turn_computes_only_what_is_new(model: Any):
    batch = DecodingBatch(model, end_ids=frozenset({END}), max_rows=4, max_prefix_bytes=2**20)
    rng = random.Random(8)
    first = row(rng, length=40, max_tokens=10)
    sample(batch, [first], rng)
    said = [*first.prompt_ids, *first.token_ids]
    turns = [row(rng, length=length) for length in (7, 9)]
    for turn in turns:
        turn.prompt_ids = [*said, *turn.prompt_ids]
    # Known are all inputs so far, which the last sampled token never was; the last token of a prompt is for the step.
    computed = count_inputs(model, lambda: batch.admit(turns))
    assert computed == 2 * (1 + 9 - 1)
    while batch.rows:
        batch.step()
    assert_logprobs_are_the_models(model, [first, *turns])


def test_conversations_of_many_lengths_stay_exact_with_prefixes(model: Any):
    batch = DecodingBatch(
        model, end_ids=frozenset({END}), max_rows=6, max_prefix_bytes=60_000
    )  # some are forgotten
    rng = random.Random(9)
    rows = [row(rng, length=rng.randrange(1, 30), max_tokens=rng.randrange(1, 15)) for _ in range(10)]
    everything = list(rows)
    for _ in range(3):
        sample(batch, rows, rng)
        previous, rows = rows, []
        for one in previous:
            kept = rng.randrange(1, len(one.prompt_ids) + len(one.token_ids) + 1)
            new = row(rng, length=rng.randrange(1, 20), max_tokens=rng.randrange(1, 15))
            new.prompt_ids = [*one.prompt_ids, *one.token_ids][:kept] + list(new.prompt_ids)
            rows.append(new)
        everything += rows
    sample(batch, rows, rng)
    assert_logprobs_are_the_models(model, everything)


def test_clearing_forgets_prefixes_of_other_weights(model: Any):
    batch = DecodingBatch(model, end_ids=frozenset({END}), max_rows=4, max_prefix_bytes=2**20)
    rng = random.Random(10)
    first = row(rng, length=40)
    sample(batch, [first], rng)
    batch.clear()
    again = row(rng)
    again.prompt_ids = first.prompt_ids
    assert count_inputs(model, lambda: batch.admit([again])) == 39


def test_a_row_ends_at_its_end_token_or_its_limit(model: Any, batch: DecodingBatch):
    rng = random.Random(3)
    rows = [row(rng, max_tokens=40) for _ in range(16)]
    sample(batch, rows, rng)
    for row_ in rows:
        if row_.finish_reason == "stop":
            assert row_.token_ids.index(END) == len(row_.token_ids) - 1
        else:
            assert len(row_.token_ids) == 40
            assert END not in row_.token_ids


def test_the_token_that_completes_a_stop_is_kept(batch: DecodingBatch):
    stopping = row(random.Random(4), max_tokens=40, stopped=lambda ids: len(ids) == 2)
    batch.admit([stopping])
    assert batch.step() == []
    assert batch.step() == [stopping]
    assert (stopping.finish_reason, len(stopping.token_ids)) == ("stop", 2)


def test_dropped_rows_leave_the_others_undisturbed(model: Any, batch: DecodingBatch):
    rng = random.Random(5)
    rows = [row(rng, length=rng.randrange(5, 40), max_tokens=15) for _ in range(10)]
    batch.admit(rows)
    batch.step()
    batch.drop([rows[0], rows[4], rows[9]])
    assert batch.num_free == 9
    while batch.rows:
        batch.step()
    assert [len(rows[i].token_ids) for i in (0, 4, 9)] == [1, 1, 1]
    assert_logprobs_are_the_models(model, rows)


def test_broken_weights_end_rows_with_an_error_and_leave_no_trace(policy: Policy):
    model = load_model(policy, dtype=torch.float32, device=CPU)
    batch = DecodingBatch(model, end_ids=frozenset({END}), max_rows=4)
    rng = random.Random(6)
    weight = model.model.layers[0].mlp.up_proj.weight
    healthy = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("nan"))
    ill = row(rng)
    batch.admit([ill])
    assert batch.step() == [ill]
    assert (ill.finish_reason, ill.token_ids, ill.logprobs) == ("error", [], [])
    with torch.no_grad():
        weight.copy_(healthy)
    rows = [row(rng, length=5)]
    sample(batch, rows, rng)
    assert_logprobs_are_the_models(model, rows)


def test_a_sliding_window_hides_what_a_full_forward_pass_hides(tmp_path: Path):
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    size: dict[str, Any] = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 4,
    }
    size |= {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8, "max_position_embeddings": 256}
    size |= {"initializer_range": 0.4, "eos_token_id": END}
    kinds = ["sliding_attention", "full_attention"]
    for model in (
        MistralForCausalLM(MistralConfig(num_hidden_layers=2, **size)),
        Gemma3ForCausalLM(Gemma3TextConfig(num_hidden_layers=2, layer_types=kinds, **size)),
    ):
        model.eval()
        batch = DecodingBatch(model, end_ids=frozenset({END}), max_rows=8)
        rng = random.Random(7)
        rows = [row(rng, length=rng.randrange(2, 40), max_tokens=15) for _ in range(12)]
        sample(batch, rows, rng)
        assert_logprobs_are_the_models(model, rows)


def test_a_model_with_other_state_than_keys_and_values_is_refused():
    config = SimpleNamespace(model_type="qwen3_next", layer_types=["linear_attention", "full_attention"])
    with pytest.raises(ConfigError, match="cannot serve qwen3_next: it has linear_attention layers"):
        attention_windows(config)


def test_prompts_are_prefilled_together_while_padding_and_memory_allow():
    assert prefill_chunks([10, 10, 10], 1000) == [slice(0, 3)]
    assert prefill_chunks([10, 10, 10], 20) == [slice(0, 2), slice(2, 3)]
    assert prefill_chunks([10, 100], 1000) == [slice(0, 1), slice(1, 2)]  # 90 of 200 would be padding
    assert prefill_chunks([5000], 1000) == [slice(0, 1)]
