"""Span names and attribute keys: OpenTelemetry's ``gen_ai`` conventions where they exist, ``agl.*`` elsewhere.

Source: OpenTelemetry semantic conventions for generative AI, https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

# Which attempt a span belongs to (on spans or on the OTLP resource).
ROLLOUT_ID = "agl.rollout_id"
ATTEMPT_ID = "agl.attempt_id"
SPAN_SEQUENCE_ID = "agl.span_sequence_id"

# A recorded model call: span name ``chat {model}``.
CHAT_SPAN_PREFIX = "chat "
EMBEDDINGS_SPAN_PREFIX = "embeddings "
"""Of a request for embeddings: counted, never trained."""
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
"""Of the input tokens, those that the provider read from its cache of prompts."""
INPUT_MESSAGES = "gen_ai.input.messages"
"""The request's messages, as JSON text in the shape in which the agent sent them."""
OUTPUT_MESSAGES = "gen_ai.output.messages"
"""The answer's messages, one a choice, as JSON text in OpenAI's shape."""
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TEMPERATURE = "gen_ai.request.temperature"
TOP_P = "gen_ai.request.top_p"
MAX_TOKENS = "gen_ai.request.max_tokens"
SEED = "gen_ai.request.seed"
CHOICE_COUNT = "gen_ai.request.choice.count"
STREAM = "gen_ai.request.stream"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
"""Of a streamed call: seconds from dispatch to the answer's first chunk."""
ERROR_TYPE = "error.type"

# What training needs of a call. Of choice 0; further choices carry ``.1``, ``.2``, ... behind the key.
PROMPT_TOKEN_IDS = "agl.prompt_token_ids"
RESPONSE_TOKEN_IDS = "agl.response_token_ids"
RESPONSE_LOGPROBS = "agl.response_logprobs"
MISSING_IDS_CAUSE = "agl.missing_ids_cause"
POLICY_VERSION = "agl.policy_version"
POLICY_VERSION_END = "agl.policy_version_end"
"""Only where the weights were swapped while the call was sampled."""
AGENT = "agl.agent"
DIALECT = "agl.dialect"
"""The client's wire format, such as ``openai.chat``."""
UPSTREAM = "agl.upstream"
"""The name of the upstream that answered, where there are several."""
LATENCY_SECONDS = "agl.latency_seconds"
COST_USD = "agl.cost_usd"
"""Missing where the model's price or the call's usage is not known."""
REQUEST_HASH = "agl.request_hash"
"""Of what the agent asked: equal requests have equal hashes, whatever their wire format."""
REPLAY = "agl.replay"
"""Of a call in a rollout that replays another: ``hit`` was answered from the record, ``miss`` by the model."""
CACHE = "agl.cache"
"""``hit``: the answer is that of an equal call before."""
CACHE_KEY = "agl.cache_key"
"""By which later calls find this one's answer."""
MEMORY_ID = "agl.memory_id"
"""By which later calls of the attempt may go on from this one: the id of the Response that the client got."""
INSTRUCTIONS = "agl.instructions"
"""True: the first input message is the call's own instructions, which later calls do not take over."""

# A reward: span name ``agl.reward``.
REWARD_SPAN = "agl.reward"
REWARD_VALUE = "agl.reward.value"
REWARD_DIMENSION_PREFIX = "agl.reward.dimension."
REWARD_RETURNED = "agl.reward.returned"
"""True: the verdict that ended the attempt (of the agent or its grader), not emitted on the way."""

# A reward that a grader gave to the record later (span name ``agl.regrade``): nothing reads it unless it is asked for.
REGRADE_SPAN = "agl.regrade"
REGRADE_GRADER = "agl.regrade.grader"

# What agents emit.
MESSAGE_SPAN = "agl.message"
MESSAGE_BODY = "agl.message.body"
OBJECT_SPAN = "agl.object"
OBJECT_JSON = "agl.object.json"
EXCEPTION_SPAN = "agl.exception"
ROLLOUT_SPAN = "agl.rollout"
RESULT = "agl.result"
"""On that span: what the agent returned, as JSON text; graders get it as ``result``."""

# What an attempt wrote: one span a stream, bounded.
OUTPUT_SPAN = "agl.output"
OUTPUT_STREAM = "agl.output.stream"
"""``log``, ``stdout`` or ``stderr``."""
OUTPUT_TEXT = "agl.output.text"
OUTPUT_BYTES = "agl.output.bytes"
"""All that was written, kept or not."""
OPERATION_INPUT = "agl.operation.input"
OPERATION_OUTPUT = "agl.operation.output"


def of_choice(key: str, index: int) -> str:
    """Return the key under which choice ``index`` of a call keeps this attribute."""
    return key if index == 0 else f"{key}.{index}"
