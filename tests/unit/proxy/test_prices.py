import sys

import orjson
import pytest

from agl.errors import ConfigError
from agl.proxy.prices import Price, Prices, cost_of, litellm_map_file

MAP = {
    "gpt-4o": {
        "input_cost_per_token": 2.5e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-06,
        "input_cost_per_token_batches": 1.25e-06,
        "litellm_provider": "openai",
    },
    "gemini/gemini-2.5-pro": {
        "input_cost_per_token": 1.25e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-07,
        "input_cost_per_token_above_200k_tokens": 2.5e-06,
        "output_cost_per_token_above_200k_tokens": 1.5e-05,
        "input_cost_per_token_above_200k_tokens_priority": 9.0,
        "litellm_provider": "gemini",
    },
    "embedding": {"input_cost_per_token": 2e-08, "output_cost_per_token": 0.0, "litellm_provider": "openai"},
    "unpriced": {"input_cost_per_token": 0.0, "output_cost_per_token": 0, "litellm_provider": "openai"},
    "by-the-second": {"input_cost_per_second": 1.0, "litellm_provider": "openai"},
}


def usage(prompt, answer, cached=0, written=0, reasoning=0):
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_creation_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


@pytest.fixture
def map_file(tmp_path):
    file = tmp_path / "map.json"
    file.write_bytes(orjson.dumps(MAP))
    return file


def test_a_call_costs_its_prompt_and_its_answer():
    # 1,000 x 2.5 / 10^6 = 0.0025 and 200 x 10 / 10^6 = 0.002
    assert cost_of(usage(1000, 200), Price(input=2.5, output=10.0)) == pytest.approx(0.0045)


def test_cached_written_and_reasoning_tokens_have_their_own_price():
    price = Price(input=4.0, output=10.0, cached_input=0.5, cache_write=5.0, reasoning=20.0)
    # 300 x 4 + 600 x 0.5 + 100 x 5 + 40 x 10 + 60 x 20 = 1200 + 300 + 500 + 400 + 1200 = 3600
    assert cost_of(usage(1000, 100, cached=600, written=100, reasoning=60), price) == pytest.approx(0.0036)


def test_without_a_price_of_their_own_they_cost_what_the_others_do():
    told = usage(1000, 100, cached=600, written=100, reasoning=60)
    # 1000 x 4 + 100 x 10 = 5000
    assert cost_of(told, Price(input=4.0, output=10.0)) == pytest.approx(0.005)


def test_a_free_model_costs_nothing():
    assert cost_of(usage(10, 10), Price(input=0.0, output=0.0)) == 0.0


@pytest.mark.parametrize(
    "told", [None, {}, {"prompt_tokens": 5}, {"completion_tokens": 5}, {"prompt_tokens": "5"}]
)
def test_a_cost_without_the_counts_is_unknown(told):
    assert cost_of(told, Price(input=1.0, output=1.0)) is None


def test_a_cost_without_a_price_is_unknown_and_not_nothing():
    assert cost_of(usage(10, 10), None) is None


def test_embeddings_cost_their_prompt():
    # 500 x 2 / 10^6
    assert cost_of(
        {"prompt_tokens": 500, "total_tokens": 500}, Price(input=2.0, output=9.0)
    ) == pytest.approx(0.001)


def test_more_cached_tokens_than_there_are_do_not_make_a_call_cheaper_than_that():
    price = Price(input=4.0, output=10.0, cached_input=1.0)
    # 100 x 1 + 10 x 10 = 200
    assert cost_of(usage(100, 10, cached=1000, written=50), price) == pytest.approx(0.0002)


def test_prices_come_from_the_map_in_dollars_per_million(map_file):
    price = Prices(map_file=map_file).price_of("gpt-4o")
    assert (price.input, price.output, price.cached_input) == pytest.approx((2.5, 10.0, 1.25))
    assert (price.cache_write, price.reasoning, price.long_prompts) == (None, None, ())


def test_a_long_prompt_costs_more_for_all_of_its_tokens(map_file):
    price = Prices(map_file=map_file).price_of("gemini/gemini-2.5-pro")
    # 200,000 x 1.25 + 1,000 x 10 = 260,000; from one token more on 2.5 and 15; cached tokens stay at 0.125
    assert cost_of(usage(200_000, 1000), price) == pytest.approx(0.26)
    # 200,001 x 2.5 + 1,000 x 15 = 515,002.5
    assert cost_of(usage(200_001, 1000), price) == pytest.approx(0.5150025)
    # 100,001 x 2.5 + 100,000 x 0.125 = 262,502.5
    assert cost_of(usage(200_001, 0, cached=100_000), price) == pytest.approx(0.2625025)


def test_a_models_provider_may_stand_before_its_name_if_it_is_that_one(map_file):
    prices = Prices(map_file=map_file)
    assert prices.price_of("openai/gpt-4o") == prices.price_of("gpt-4o")
    assert prices.price_of("azure/gpt-4o") is None
    assert prices.price_of("gemini-2.5-pro") is None


@pytest.mark.parametrize("model", ["policy", "", "/", "unpriced", "by-the-second"])
def test_a_model_without_a_price_is_unknown(map_file, model):
    assert Prices(map_file=map_file).price_of(model) is None


def test_a_free_answer_is_no_free_model(map_file):
    assert Prices(map_file=map_file).price_of("embedding").input == pytest.approx(0.02)


def test_a_setting_goes_before_the_map(map_file):
    ours = {"gpt-4o": {"input": 1, "output": 2, "cached_input": 0.5}, "policy": {"input": 0, "output": 0}}
    prices = Prices(ours, map_file=map_file)
    assert prices.price_of("gpt-4o") == Price(input=1.0, output=2.0, cached_input=0.5)
    assert cost_of(usage(10, 10), prices.price_of("policy")) == 0.0


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"input": 1}, "output missing"),
        ({}, "input and output missing"),
        ({"input": 1, "output": -1}, "prices.m.output=-1"),
        ({"input": float("nan"), "output": 1}, "prices.m.input=nan"),
        ({"input": True, "output": 1}, "prices.m.input=True"),
        ({"input": 1, "output": 1, "cached": 1}, "prices.m.cached is not a price"),
    ],
)
def test_a_wrong_setting_is_named(setting, named):
    with pytest.raises(ConfigError, match=named):
        Prices({"m": setting})


def test_a_map_that_cannot_be_read_leaves_costs_unknown_and_says_so(tmp_path, caplog):
    broken = tmp_path / "map.json"
    broken.write_bytes(b"{")
    assert Prices(map_file=broken).price_of("gpt-4o") is None
    assert Prices(map_file=tmp_path / "none.json").price_of("gpt-4o") is None
    assert "cannot be read" in caplog.text


def test_the_map_is_read_when_a_price_is_asked_for_and_once(map_file):
    prices = Prices({"policy": {"input": 1, "output": 1}}, map_file=map_file)
    content = map_file.read_bytes()
    map_file.unlink()
    assert prices.price_of("policy") is not None
    map_file.write_bytes(content)
    assert prices.price_of("gpt-4o") is not None
    map_file.unlink()
    assert prices.price_of("embedding") is not None


def test_the_installed_litellms_map_is_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "model_prices_and_context_window_backup.json").write_bytes(orjson.dumps(MAP))
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert litellm_map_file() == package / "model_prices_and_context_window_backup.json"
    assert Prices().price_of("gpt-4o").output == pytest.approx(10.0)
    assert "litellm" not in sys.modules


def test_without_litellm_there_is_no_map(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    assert litellm_map_file() is None
    assert Prices().price_of("gpt-4o") is None
