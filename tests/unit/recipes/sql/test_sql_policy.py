import json
import random
from typing import Any

import pytest
from sql_recipe.data import questions
from sql_recipe.demonstrations import Noise, demonstrations
from sql_recipe.make_policy import example_from_conversation, is_held_out
from sql_recipe.messages import first_message

from .conftest import FOLDER

transformers = pytest.importorskip("transformers")
POLICY = FOLDER / "policy"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(POLICY)


@pytest.fixture(scope="module")
def talks() -> list[list[dict[str, str]]]:
    return list(demonstrations(200, noise=Noise(), rng=random.Random(3), is_held_out=is_held_out))


def prompt(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def test_the_policy_is_an_ordinary_small_llama(tokenizer: Any) -> None:
    config = json.loads((POLICY / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["head_dim"] % 32 == 0
    assert config["vocab_size"] == len(tokenizer)
    assert sum(file.stat().st_size for file in POLICY.iterdir()) < 8_000_000
    model = transformers.AutoModelForCausalLM.from_pretrained(POLICY)
    assert 0.4e6 < sum(parameter.numel() for parameter in model.parameters()) < 2e6
    assert (
        model.generation_config.eos_token_id
        == tokenizer.eos_token_id
        == tokenizer.convert_tokens_to_ids("<|im_end|>")
    )


def test_each_prompt_begins_with_the_prompt_and_the_answer_before(
    tokenizer: Any, talks: list[list[dict[str, str]]]
) -> None:
    for talk in talks:
        for end in range(1, len(talk) - 1, 2):
            answer = [*tokenizer.encode(talk[end]["content"]), tokenizer.eos_token_id]
            before = prompt(tokenizer, talk[:end]) + answer
            assert prompt(tokenizer, talk[: end + 2])[: len(before)] == before


def test_demonstrations_are_what_the_chat_template_writes(
    tokenizer: Any, talks: list[list[dict[str, str]]]
) -> None:
    for talk in talks:
        ids, spoken = example_from_conversation(talk, tokenizer)
        assert ids == tokenizer.apply_chat_template(talk, return_dict=False)
        said = tokenizer.decode([i for i, s in zip(ids, spoken, strict=True) if s])
        assert said == "".join(m["content"] + "<|im_end|>" for m in talk if m["role"] == "assistant")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM a_b WHERE c >= 10.5 AND d != 'New York';",
        "naïve 東京 🙂\n\n  def f(x):\n\treturn x  ",
        "it's 3 rows: A, 1; B, 2; ...",
        "  two  spaces  ",
        "user\nassistant\n",
        "",
    ],
)
def test_text_survives_the_tokenizer(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_questions_and_queries_survive_and_stay_short(tokenizer: Any) -> None:
    for task in questions("test", limit=100) + questions("schema", limit=50):
        for text in (task["question"], task["schema"], task["gold_sql"]):
            assert tokenizer.decode(tokenizer.encode(text)) == text
        message = {"role": "user", "content": first_message(task["question"], task["schema"])}
        assert len(prompt(tokenizer, [message])) < 120
        assert len(tokenizer.encode(task["gold_sql"])) < 100


def test_a_name_is_the_same_tokens_in_schema_question_and_query(tokenizer: Any) -> None:
    name = tokenizer.encode("quantity")
    for text in (
        "orders(id,quantity)",
        "What is the mean quantity of orders?",
        "SELECT AVG(quantity) FROM orders",
    ):
        ids = tokenizer.encode(text)
        assert any(ids[start : start + len(name)] == name for start in range(len(ids))), text
