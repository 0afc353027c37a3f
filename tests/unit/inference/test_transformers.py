from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agl.errors import ConfigError, InferenceError
from agl.inference.base import Engine
from agl.inference.huggingface import load_model, load_tokenizer
from agl.inference.transformers import TransformersEngine
from agl.types.policy import Policy
from agl.types.weights import PolicyWeights


@pytest.fixture
async def engine(policy: Policy) -> AsyncIterator[TransformersEngine]:
    async with TransformersEngine(policy) as entered:
        yield entered


@pytest.fixture(scope="module")
def reference(policy: Policy) -> tuple[Any, Any]:
    """Model and tokenizer, loaded apart from the engine's."""
    return load_model(policy, dtype=torch.float32, device=torch.device("cpu")), load_tokenizer(policy)


def request(text: str = "SELECT", **parameters: Any) -> dict[str, Any]:
    return {
        "model": "policy",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 16,
        **parameters,
    }


def ids(answer: dict[str, Any], choice: int = 0) -> list[int]:
    return answer["choices"][choice]["token_ids"]


def logprobs(answer: dict[str, Any], choice: int = 0) -> list[float]:
    return [entry["logprob"] for entry in answer["choices"][choice]["logprobs"]["content"]]


def reference_logprobs(model: Any, prompt: list[int], answer: list[int], temperature: float) -> list[float]:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *answer]]), use_cache=False).logits[
            0, len(prompt) - 1 : -1
        ]
    return (
        (logits / (temperature or 1.0))
        .log_softmax(-1)
        .gather(1, torch.tensor(answer)[:, None])[:, 0]
        .tolist()
    )


def scaled(model: Any, factor: float) -> dict[str, torch.Tensor]:
    return {
        name: tensor.detach() * factor
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }


async def when_sampling(engine: TransformersEngine) -> None:
    """Return once the engine has sampled with others in flight: a short call that joined them is answered."""
    await engine.complete_chat(request("now", max_tokens=1))


def test_it_is_an_engine(policy: Policy):
    engine = TransformersEngine(policy)
    assert isinstance(engine, Engine)
    assert (engine.model, engine.policy_version, engine.trainable) == ("policy", 0, True)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_ids_and_logprobs_are_exact(
    engine: TransformersEngine, reference: tuple[Any, Any], temperature: float
):
    model, tokenizer = reference
    answer = await engine.complete_chat(request(temperature=temperature, top_p=0.9, logprobs=True))
    prompt = tokenizer.encode(
        "<|im_start|>user\nSELECT<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False
    )
    assert answer["prompt_token_ids"] == prompt
    assert logprobs(answer) == pytest.approx(
        reference_logprobs(model, prompt, ids(answer), temperature), abs=1e-4
    )
    text = answer["choices"][0]["message"]["content"]
    assert text == tokenizer.decode(ids(answer), skip_special_tokens=True)


async def test_greedy_answers_are_the_same_alone_and_in_company(engine: TransformersEngine):
    requests = [request(f"question {i} " * (i % 5 + 1), temperature=0, max_tokens=5 + i) for i in range(12)]
    alone = [ids(await engine.complete_chat(one)) for one in requests]
    noise = [request(f"noise {i}", temperature=1.0, top_p=0.8, stop=["z"]) for i in range(12)]
    together = await asyncio.gather(*(engine.complete_chat(one) for one in [*requests, *noise]))
    assert [ids(answer) for answer in together[:12]] == alone


async def test_a_seed_decides_the_answer_whatever_else_is_sampled(engine: TransformersEngine):
    alone = await engine.complete_chat(request(seed=5))
    company = [engine.complete_chat(request(f"noise {i}")) for i in range(20)]
    again, other, *_ = await asyncio.gather(
        engine.complete_chat(request(seed=5)), engine.complete_chat(request(seed=6)), *company
    )
    assert ids(again) == ids(alone)
    assert ids(other) != ids(alone)


async def test_without_seeds_the_engines_seed_decides(policy: Policy):
    async def answers(seed: int) -> list[list[int]]:
        async with TransformersEngine(policy, seed=seed) as engine:
            return [ids(await engine.complete_chat(request())) for _ in range(3)]

    first, again, other = await answers(1), await answers(1), await answers(2)
    assert first == again
    assert first != other
    assert first[0] != first[1]


async def test_n_gives_different_choices_and_the_first_is_that_of_n_1(
    engine: TransformersEngine, reference: tuple[Any, Any]
):
    single = await engine.complete_chat(request(seed=3))
    answer = await engine.complete_chat(request(seed=3, n=5, logprobs=True))
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3, 4]
    assert ids(answer) == ids(single)
    assert len({tuple(ids(answer, i)) for i in range(5)}) > 1
    for i in range(5):
        expected = reference_logprobs(reference[0], answer["prompt_token_ids"], ids(answer, i), 1.0)
        assert logprobs(answer, i) == pytest.approx(expected, abs=1e-4)
    assert answer["usage"]["completion_tokens"] == sum(len(ids(answer, i)) for i in range(5))


async def test_a_stop_string_ends_the_answer_and_is_not_in_its_text(
    engine: TransformersEngine, reference: tuple[Any, Any]
):
    whole = await engine.complete_chat(request(seed=1, max_tokens=60))
    text = whole["choices"][0]["message"]["content"]
    stop = next(char for char in text[5:] if char.isascii() and char.isprintable())
    answer = await engine.complete_chat(request(seed=1, max_tokens=60, stop=["never seen", stop]))
    choice = answer["choices"][0]
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"
    size = len(choice["token_ids"])
    assert choice["token_ids"] == ids(whole)[:size]
    decode = reference[1].decode
    assert stop in decode(choice["token_ids"], skip_special_tokens=True)
    assert stop not in decode(choice["token_ids"][:-1], skip_special_tokens=True)


async def test_an_answer_cut_by_its_limit_says_so(engine: TransformersEngine):
    answers = await asyncio.gather(*(engine.complete_chat(request(f"{i}", max_tokens=4)) for i in range(20)))
    for answer in answers:
        ended = ids(answer)[-1] == 2
        assert answer["choices"][0]["finish_reason"] == ("stop" if ended else "length")
        assert ended or len(ids(answer)) == 4


async def test_the_context_ends_an_answer_without_limit(engine: TransformersEngine):
    answer = await engine.complete_chat(request("a b " * 60, max_tokens=None, n=8))
    cut = [i for i in range(8) if answer["choices"][i]["finish_reason"] == "length"]
    assert cut
    assert {len(ids(answer, i)) for i in cut} == {256 - len(answer["prompt_token_ids"])}


async def test_a_prompt_that_is_too_long_is_refused(engine: TransformersEngine):
    for text in ("a b " * 200, "a b " * 5000):
        with pytest.raises(InferenceError) as caught:
            await engine.complete_chat(request(text))
        assert caught.value.status == 400
        assert caught.value.body["error"]["code"] == "context_length_exceeded"


async def test_an_unsupported_parameter_is_refused_and_the_engine_serves_on(engine: TransformersEngine):
    with pytest.raises(InferenceError, match="logit_bias"):
        await engine.complete_chat(request(logit_bias={"3": 100}))
    assert ids(await engine.complete_chat(request()))


async def test_each_call_is_sampled_by_the_one_version_it_names(
    engine: TransformersEngine, reference: tuple[Any, Any]
):
    model, _ = reference
    versions = {version: scaled(model, 1 - version / 10) for version in range(6)}
    answers: list[dict[str, Any]] = []

    async def client(number: int) -> None:
        for turn in range(8):
            answer = await engine.complete_chat(request(f"{number} {turn}", logprobs=True, n=2))
            answers.append(answer)

    async def learner() -> None:
        for version in range(1, 6):
            await engine.load_weights(PolicyWeights(policy_version=version, tensors=versions[version]))
            assert engine.policy_version == version
            await when_sampling(engine)

    await asyncio.gather(learner(), *(client(number) for number in range(8)))
    assert len({answer["policy_version"] for answer in answers}) > 2
    served = load_model(Policy(path=model.name_or_path), dtype=torch.float32, device=torch.device("cpu"))
    for version, tensors in versions.items():
        served.load_state_dict(tensors, strict=False)
        for answer in (answer for answer in answers if answer["policy_version"] == version):
            for i in range(2):
                expected = reference_logprobs(served, answer["prompt_token_ids"], ids(answer, i), 1.0)
                assert logprobs(answer, i) == pytest.approx(expected, abs=1e-4)


async def test_weights_that_do_not_fit_are_refused_and_the_old_ones_served(engine: TransformersEngine):
    before = await engine.complete_chat(request(temperature=0))
    with pytest.raises(InferenceError, match="missing tensors"):
        await engine.load_weights(PolicyWeights(policy_version=9, tensors={}))
    after = await engine.complete_chat(request(temperature=0))
    assert ids(after) == ids(before)
    assert after["policy_version"] == engine.policy_version == 0


async def test_broken_weights_fail_calls_until_good_ones_arrive(
    engine: TransformersEngine, reference: tuple[Any, Any]
):
    good = scaled(reference[0], 1.0)
    bad = {name: tensor * float("nan") for name, tensor in good.items()}
    expected = ids(await engine.complete_chat(request(temperature=0)))
    await engine.load_weights(PolicyWeights(policy_version=1, tensors=bad))
    with pytest.raises(InferenceError, match="policy version 1 gives NaN") as caught:
        await engine.complete_chat(request())
    assert caught.value.status == 500
    await engine.load_weights(PolicyWeights(policy_version=2, tensors=good))
    assert ids(await engine.complete_chat(request(temperature=0))) == expected


async def test_a_cancelled_call_makes_room(policy: Policy):
    async with TransformersEngine(policy, max_batch_size=2) as engine:
        endless = [
            asyncio.create_task(engine.complete_chat(request(f"{i}", max_tokens=240, n=20)))
            for i in range(20)
        ]
        next_one = asyncio.create_task(engine.complete_chat(request(max_tokens=2)))
        await asyncio.sleep(0)  # let them reach the engine
        for task in endless:
            task.cancel()
        results = await asyncio.gather(*endless, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert (await next_one)["choices"]


async def test_leaving_fails_the_calls_in_flight_and_all_later_ones(policy: Policy):
    engine = TransformersEngine(policy, max_batch_size=1)
    async with engine:
        in_flight = [
            asyncio.create_task(engine.complete_chat(request(max_tokens=200, n=100))) for _ in range(3)
        ]
        await asyncio.sleep(0)
    results = await asyncio.gather(*in_flight, return_exceptions=True)
    assert [result.status for result in results if isinstance(result, InferenceError)] == [503, 503, 503]
    with pytest.raises(InferenceError, match="closed"):
        await engine.complete_chat(request())
    with pytest.raises(InferenceError, match="closed"):
        await engine.load_weights(PolicyWeights(policy_version=1, tensors={}))


async def test_leaving_frees_the_model(policy: Policy):
    async with TransformersEngine(policy) as engine:
        model = weakref.ref(engine._running().model)
        await engine.complete_chat(request())
    gc.collect()
    freed = model() is None
    assert freed


async def test_it_can_be_entered_again(policy: Policy):
    engine = TransformersEngine(policy)
    for _ in range(2):
        async with engine:
            assert ids(await engine.complete_chat(request()))


async def test_a_folder_that_breaks_later_fails_on_entering(policy: Policy, tmp_path: Path):
    import shutil

    folder = Path(shutil.copytree(policy.path, tmp_path / "copy"))
    engine = TransformersEngine(Policy(path=str(folder)))
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="the model cannot be loaded"):
        await engine.__aenter__()


@pytest.mark.parametrize("setting", ["max_batch_size", "num_threads"])
def test_a_setting_out_of_range_is_named(policy: Policy, setting: str):
    with pytest.raises(ConfigError, match=f"inference.{setting}=0"):
        TransformersEngine(policy, **{setting: 0})


def test_a_missing_folder_is_found_before_anything_starts():
    with pytest.raises(ConfigError, match=r"policy\.path=\./nowhere does not exist"):
        TransformersEngine(Policy(path="./nowhere"))


def test_building_the_engine_imports_neither_torch_nor_transformers(policy: Policy):
    code = (
        "import sys; from agl.inference.transformers import TransformersEngine; from agl.types.policy import Policy;"
        f"TransformersEngine(Policy(path={policy.path!r}));"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_the_tokens_of_a_prompt_are_counted_without_sampling(engine: TransformersEngine) -> None:
    asked = request("SELECT name FROM singer", max_tokens=1)
    counted = await engine.count_tokens(asked)
    assert counted == len((await engine.complete_chat(asked))["prompt_token_ids"])
    with pytest.raises(InferenceError):
        await engine.count_tokens({**asked, "model": "other"})
