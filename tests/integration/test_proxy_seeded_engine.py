"""Every client against a small policy that is really sampled: streams leave the record of plain calls, to the bit."""

import json
from string import ascii_lowercase

import pytest
from anthropic_clients import AnthropicAsync, AnthropicSync
from framework_clients import AgentsSdk, Curl, LangChain
from openai_clients import OpenAIAsync, OpenAISync
from served_proxy import serving, spans_of
from tcp_relay import TLS
from tiny_policies import byte_tokenizer, write_llama

from agl.inference.transformers import TransformersEngine
from agl.store.sqlite import InMemoryLightningStore
from agl.types import attributes as key
from agl.types.packing import floats_from_packed, ids_from_packed
from agl.types.policy import Policy

CLIENTS = {
    "openai async": OpenAIAsync(),
    "openai sync": OpenAISync(),
    "anthropic async": AnthropicAsync(),
    "anthropic sync": AnthropicSync(),
    "langchain": LangChain(),
    "agents sdk": AgentsSdk(),
    "curl": Curl(),
}
CELLS = [
    (name, feature)
    for name, client in CLIENTS.items()
    for feature in ("text", "n>1")
    if feature in client.features
]
NUM_TOKENS = 200
# Some clients take an answer that ran out of tokens for a failure: it ends at the first of these letters.
FORCED = {"seed": 7, "temperature": 1.0, "max_tokens": NUM_TOKENS, "stop": list(ascii_lowercase)}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
OF_ONE_CALL = (key.LATENCY_SECONDS, key.TIME_TO_FIRST_CHUNK, key.STREAM, key.RESPONSE_ID, key.MEMORY_ID)


@pytest.fixture(autouse=True)
def few_authorities(monkeypatch):
    """Nobody speaks TLS here; the certificates of all authorities take each new client a tenth of a second."""
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS))


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    tokenizer = byte_tokenizer(TEMPLATE, vocabulary=300, texts=["say something", "system user assistant"])
    folder = write_llama(
        tmp_path_factory.mktemp("policy"),
        tokenizer,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.4,
    )
    return Policy(path=str(folder), device="cpu", name="policy")


@pytest.mark.parametrize(("name", "feature"), CELLS)
async def test_a_stream_of_a_seeded_policy_leaves_the_record_of_the_plain_call(policy, name, feature):
    client = CLIENTS[name]
    async with (
        TransformersEngine(
            policy, prefix_cache_bytes=0
        ) as engine,  # what is known of prefixes rounds otherwise
        InMemoryLightningStore() as store,
        serving(store, engine, sampling=FORCED) as (_, llm, attempt),
    ):
        plain = await client.ask(llm, feature, stream=False)
        streamed = await client.ask(llm, feature, stream=True)
        first, second = await spans_of(store, attempt)
    assert streamed == plain
    assert record_of(second) == record_of(first)
    told, num_choices = first.attributes, len(plain.texts)
    messages = json.loads(told[key.OUTPUT_MESSAGES])
    assert [message["content"] for message in messages] == plain.texts
    for index in range(num_choices):
        ids = ids_from_packed(told[key.of_choice(key.RESPONSE_TOKEN_IDS, index)])
        logprobs = floats_from_packed(told[key.of_choice(key.RESPONSE_LOGPROBS, index)])
        assert 0 < len(ids) == len(logprobs) <= NUM_TOKENS
        assert max(logprobs) < 0
    assert plain.usage == (told[key.INPUT_TOKENS], told[key.OUTPUT_TOKENS])
    assert told[key.INPUT_TOKENS] == len(ids_from_packed(told[key.PROMPT_TOKEN_IDS]))
    assert (num_choices, told[key.POLICY_VERSION]) == (2 if feature == "n>1" else 1, 0)


def record_of(span):
    """What must be the same of two equal calls; each answer has an id of its own."""
    told = {name: value for name, value in span.attributes.items() if name not in OF_ONE_CALL}
    return span.name, span.kind, span.status, told
