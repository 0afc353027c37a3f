from typing import Any

import orjson
import pytest
from anthropic_exchange import DIALECT, call, final_message, read, valid
from hypothesis import given
from hypothesis import strategies as st

from agl.errors import InferenceError
from agl.proxy.dialects.anthropic.native import MessageReader, chat_answer, chat_usage
from agl.proxy.streams import StreamedAnswer

USAGE = {
    "input_tokens": 30,
    "cache_creation_input_tokens": 6,
    "cache_read_input_tokens": 64,
    "output_tokens": 20,
    "service_tier": "standard",
}
CITATION = {
    "type": "char_location",
    "cited_text": "sky",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 3,
}


def message(*content: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A Message of the provider."""
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-6",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
        **fields,
    }


def text(said, **more):
    return {"type": "text", "text": said, **more}


def thinking(said, signature="c2ln"):
    return {"type": "thinking", "thinking": said, "signature": signature}


def use(tool_input, tool_id="toolu_1", **more):
    return {"type": "tool_use", "id": tool_id, "name": "weather", "input": tool_input, **more}


def events(told: dict[str, Any], cut=lambda text: [text]) -> list[tuple[str, dict[str, Any]]]:
    """The provider's stream of a Message."""
    opening = {**told, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    stream: list[dict[str, Any]] = [{"type": "message_start", "message": opening}, {"type": "ping"}]
    for index, block in enumerate(told["content"]):
        deltas: list[dict[str, Any]] = []
        begun = dict(block)
        if block["type"] == "text":
            begun["text"] = ""
            deltas += [{"type": "citations_delta", "citation": each} for each in begun.pop("citations", ())]
            deltas += [{"type": "text_delta", "text": piece} for piece in cut(block["text"])]
        elif block["type"] == "thinking":
            begun |= {"thinking": "", "signature": ""}
            deltas += [{"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif block["type"] in ("tool_use", "server_tool_use"):
            begun["input"] = {}
            written = orjson.dumps(block["input"]).decode() if block["input"] else ""
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *cut(written)]]
        stream.append({"type": "content_block_start", "index": index, "content_block": begun})
        stream += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        stream.append({"type": "content_block_stop", "index": index})
    stop = {name: told[name] for name in ("stop_reason", "stop_sequence", "stop_details") if name in told}
    stream.append(
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": USAGE["output_tokens"]}}
    )
    stream.append({"type": "message_stop"})
    return [(event["type"], event) for event in stream]


def assembled(stream: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """A plain reading of the chunks: texts are added up, anything else is taken as it comes."""
    said: dict[str, Any] = {"content": None}
    calls: dict[int, dict[str, Any]] = {}
    choice: dict[str, Any] = {"index": 0, "message": said}
    answer: dict[str, Any] = {"choices": [choice]}
    reader = MessageReader()
    for chunk in [chunk for name, data in stream for chunk in reader.event(name, data)]:
        answer |= {"id": chunk["id"], "model": chunk["model"]}
        answer |= {"usage": chunk["usage"]} if "usage" in chunk else {}
        for told in chunk["choices"]:
            for name, value in told["delta"].items():
                if name == "tool_calls":
                    for each in value:
                        known = calls.setdefault(each["index"], {"function": {"arguments": ""}})
                        known["id"] = each.get("id", known.get("id"))
                        known["function"]["name"] = each["function"].get(
                            "name", known["function"].get("name")
                        )
                        known["function"]["arguments"] += each["function"]["arguments"]
                elif name in ("content", "reasoning_content"):
                    said[name] = (said.get(name) or "") + value
                else:
                    said[name] = value
            choice |= {
                name: told[name] for name in ("finish_reason", "stop_reason") if told.get(name) is not None
            }
    if calls:
        said["tool_calls"] = [calls[index] for index in sorted(calls)]
    return answer


def shown(answer, **fields):
    """The Message that a client sees of a canonical answer."""
    return valid(DIALECT.answer(read(thinking={"type": "adaptive"}, **fields), answer))


def test_a_message_is_a_chat_completion():
    told = message(text("Let me look."), use({"city": "Köln"}), use({}, "toolu_2"), stop_reason="tool_use")
    assert chat_answer(told) == {
        "id": "msg_01",
        "object": "chat.completion",
        "created": 0,
        "model": "claude-opus-4-6",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [
                        call("weather", '{"city": "Köln"}', "toolu_1"),
                        call("weather", "{}", "toolu_2"),
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 64, "cache_creation_tokens": 6},
        },
    }


def test_a_message_without_text_has_an_empty_one_or_none_beside_calls():
    assert chat_answer(message(thinking("hm")))["choices"][0]["message"]["content"] == ""
    assert chat_answer(message(use({})))["choices"][0]["message"]["content"] is None


def test_thinking_is_counted_among_the_output():
    counted = chat_usage({**USAGE, "output_tokens_details": {"thinking_tokens": 12}})
    assert counted["completion_tokens_details"] == {"reasoning_tokens": 12}
    assert chat_usage({}) == chat_usage({"input_tokens": 0, "output_tokens": None})


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "stop"),
        ("refusal", "content_filter"),
        ("reason of tomorrow", "stop"),
        (None, None),
    ],
)
def test_reasons_of_the_stop_have_their_canonical_name(reason, finish):
    assert chat_answer(message(text("x"), stop_reason=reason))["choices"][0]["finish_reason"] == finish


def test_what_the_canonical_form_says_is_not_said_twice():
    plain = message(text(" a"), use({"b": 1.5}), stop_reason="tool_use")
    assert "anthropic" not in chat_answer(plain)["choices"][0]["message"]
    signed = chat_answer(message(thinking("hm"), text("a")))["choices"][0]["message"]
    assert signed["anthropic"] == {"content": [thinking("hm"), text("a")]}
    assert (signed["reasoning_content"], signed["content"]) == ("hm", "a")


def test_what_the_client_is_not_shown_by_text_alone_is_kept_beside_it():
    found = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    told = message(text("I "), found, text("say", citations=[CITATION]), stop_reason="pause_turn")
    said = chat_answer(told)["choices"][0]["message"]
    assert said["content"] == "I say"
    assert "tool_calls" not in said
    assert said["anthropic"] == {"content": told["content"], "stop_reason": "pause_turn"}


blocks = st.one_of(
    st.builds(text, st.text(min_size=1)),
    st.builds(text, st.just("\n "), citations=st.just([CITATION])),
    st.builds(thinking, st.text(), st.sampled_from(["", "c2ln"])),
    st.just({"type": "redacted_thinking", "data": "ZGF0YQ=="}),
    st.builds(
        use,
        st.dictionaries(
            st.text(), st.none() | st.integers(-(2**63), 2**63) | st.text() | st.booleans(), max_size=3
        ),
        st.text("ab1", min_size=1),
    ),
    st.just({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}),
)
stops = st.sampled_from(
    [
        {"stop_reason": "end_turn", "stop_sequence": None},
        {"stop_reason": "max_tokens", "stop_sequence": None},
        {"stop_reason": "tool_use", "stop_sequence": None},
        {"stop_reason": "pause_turn", "stop_sequence": None},
        {"stop_reason": "stop_sequence", "stop_sequence": "END"},
        {
            "stop_reason": "refusal",
            "stop_sequence": None,
            "stop_details": {"type": "refusal", "category": "bio"},
        },
        {"stop_reason": "model_context_window_exceeded", "stop_sequence": None},
    ]
)


def essence(told):
    """A Message without what says nothing: nulls and the tier of service."""
    kept = {name: value for name, value in told.items() if value is not None}
    kept["content"] = [
        {name: value for name, value in block.items() if value is not None} for block in told["content"]
    ]
    kept["usage"] = {
        name: value for name, value in told["usage"].items() if name in USAGE and name != "service_tier"
    }
    return kept


@given(st.lists(blocks, min_size=1, max_size=5), stops)
def test_a_message_comes_back_as_it_was_plain_and_streamed(content, stop):
    told = message(*content, **stop)
    canonical = orjson.loads(orjson.dumps(chat_answer(told)))
    assert essence(shown(canonical, stop_sequences=["END"])) == essence(told)
    request = read(thinking={"type": "adaptive"}, stop_sequences=["END"])
    assert essence(final_message(DIALECT.events(request).end(canonical))) == essence(told)


@given(st.data(), st.lists(blocks, min_size=1, max_size=5), stops)
def test_a_native_stream_is_the_plain_answer_however_it_is_cut(data, content, stop):
    def cut(text):
        borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        return [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]

    told = message(*content, **stop)
    answer = assembled(events(told, cut))
    plain = chat_answer(told)
    choice, expected = answer["choices"][0], plain["choices"][0]
    assert (choice["finish_reason"], choice.get("stop_reason")) == (
        expected["finish_reason"],
        expected.get("stop_reason"),
    )
    assert (choice["message"]["content"] or "") == (expected["message"]["content"] or "")
    assert choice["message"].get("reasoning_content") == expected["message"].get("reasoning_content")
    calls = [
        (each["id"], each["function"]["name"], orjson.loads(each["function"]["arguments"]))
        for each in choice["message"].get("tool_calls", ())
    ]
    assert calls == [
        (each["id"], each["function"]["name"], orjson.loads(each["function"]["arguments"]))
        for each in expected["message"].get("tool_calls", ())
    ]
    assert answer["usage"] == plain["usage"]
    assert essence(shown(answer, stop_sequences=["END"])) == essence(told)


def test_the_arguments_of_a_stream_are_kept_as_they_were_written():
    stream = events(message(use({"city": "X"}), stop_reason="tool_use"))
    written = [data for _, data in stream if data.get("delta", {}).get("partial_json")]
    written[0]["delta"]["partial_json"] = '{ "city":"X",  "n": 1.0}'
    said = assembled(stream)["choices"][0]["message"]
    assert said["tool_calls"][0]["function"]["arguments"] == '{ "city":"X",  "n": 1.0}'


def test_a_cut_input_of_a_stream_is_kept_to_the_letter():
    stream = events(message(use({"city": "X"}), stop_reason="max_tokens"))
    written = [data for _, data in stream if data.get("delta", {}).get("partial_json")]
    written[0]["delta"]["partial_json"] = '{"city": "X'
    answer = assembled(stream)
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "X'
    assert shown(answer)["content"][0]["input"] == {"INVALID_JSON": '{"city": "X'}


def test_an_error_in_a_stream_is_raised_with_its_status():
    reader = MessageReader()
    data = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(InferenceError) as caught:
        reader.event("error", data)
    assert (caught.value.status, caught.value.body) == (529, data)


def test_pings_and_events_of_tomorrow_are_passed_over():
    reader = MessageReader()
    assert reader.event("ping", {"type": "ping"}) == []
    assert reader.event("new_event", {"type": "new_event"}) == []


def test_a_stream_that_was_cut_has_said_what_it_said():
    stream = events(message(text("one two")))[:5]
    assert assembled(stream)["choices"][0]["message"]["content"] == "one two"


@given(st.data(), st.lists(blocks, min_size=1, max_size=5), stops)
def test_the_record_of_a_passed_stream_is_that_of_the_passed_answer(data, content, stop):
    told = message(*content, **stop)
    reader, received = MessageReader(), StreamedAnswer()
    for name, event in events(told, lambda text: list(text) if data.draw(st.booleans()) else [text]):
        for chunk in reader.event(name, event):
            received.add(chunk)
    streamed, plain = received.answer(), chat_answer(told)
    for answer in (streamed, plain):
        said = answer["choices"][0]["message"]
        for each in said.get("tool_calls", ()):  # the provider spaces its JSON as it likes
            each["function"]["arguments"] = orjson.loads(each["function"]["arguments"])
    assert streamed["choices"][0].pop("logprobs") is None
    assert streamed == plain
