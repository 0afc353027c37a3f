import orjson
import pytest
from anthropic_exchange import DIALECT, HELLO, PNG, read
from hypothesis import given
from hypothesis import strategies as st

from agl.proxy.dialects.anthropic.content import arguments_text
from agl.proxy.refusal import CallRefusedError


def chat(*messages, **fields):
    request = read(messages=list(messages), **fields)
    assert request.native_only is None
    return request.chat["messages"]


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(said, **more):
    return {"type": "text", "text": said, **more}


def part(said):
    return {"type": "text", "text": said}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def test_a_text_and_the_same_text_as_one_block_are_the_same_message():
    assert chat({"role": "user", "content": " hi\n"}) == [{"role": "user", "content": " hi\n"}]
    assert chat(user(text(" hi\n"))) == [{"role": "user", "content": " hi\n"}]


@given(st.lists(st.text(), min_size=2))
def test_texts_side_by_side_stay_apart_to_the_last_blank(texts):
    content = chat(user(*map(text, texts)))[0]["content"]
    assert content == [part(said) for said in texts]


def test_a_system_prompt_is_the_first_message_text_or_blocks():
    hello = {"role": "user", "content": "hello"}
    assert chat(hello, system=" be brief ")[0] == {"role": "system", "content": " be brief "}
    cached = text("b", cache_control={"type": "ephemeral"})
    assert chat(hello, system=[text("a"), cached])[0] == {"role": "system", "content": [part("a"), part("b")]}


@pytest.mark.parametrize("system", ["", [], None])
def test_an_empty_system_prompt_is_none(system):
    assert [message["role"] for message in chat({"role": "user", "content": "hello"}, system=system)] == [
        "user"
    ]


def test_a_system_message_may_stand_between_the_turns():
    turns = chat(
        {"role": "user", "content": "a"}, {"role": "system", "content": [text("b")]}, user(text("c"))
    )
    assert [(turn["role"], turn["content"]) for turn in turns] == [
        ("user", "a"),
        ("system", "b"),
        ("user", "c"),
    ]


def test_images_stay_between_the_texts_where_they_were():
    linked = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    content = chat(user(text("a"), IMAGE, text("b"), linked))[0]["content"]
    link = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert content == [part("a"), IMAGE_PART, part("b"), link]


def test_an_image_alone_is_a_list_of_one():
    assert chat(user(IMAGE))[0]["content"] == [IMAGE_PART]


def test_tool_uses_and_results_are_calls_and_tool_messages_before_the_users_own_text():
    uses = [
        {"type": "tool_use", "id": f"t{i}", "name": "weather", "input": {"city": city, "days": [1.0, 2]}}
        for i, city in enumerate(["Köln", "Bonn"])
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": " rain "},
        {"type": "tool_result", "tool_use_id": "t0", "content": [text("sun"), IMAGE], "is_error": False},
    ]
    turns = chat(user(text("?")), assistant(text("Let me look.\n"), *uses), user(*results, text("and?")))
    assert turns[1] == {
        "role": "assistant",
        "content": "Let me look.\n",
        "tool_calls": [
            {
                "id": f"t{i}",
                "type": "function",
                "function": {"name": "weather", "arguments": f'{{"city": "{city}", "days": [1.0, 2]}}'},
            }
            for i, city in enumerate(["Köln", "Bonn"])
        ],
    }
    assert turns[2:] == [
        {"role": "tool", "tool_call_id": "t1", "content": " rain "},
        {"role": "tool", "tool_call_id": "t0", "content": [part("sun"), IMAGE_PART]},
        {"role": "user", "content": "and?"},
    ]


def test_results_come_first_wherever_they_stood_and_leave_no_empty_turn():
    result = {"type": "tool_result", "tool_use_id": "t", "content": "4"}
    assert [turn["role"] for turn in chat(user(text("x"), result))] == ["tool", "user"]
    assert [turn["role"] for turn in chat(user(result))] == ["tool"]


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"content": "Traceback\n", "is_error": True}, "Traceback\n"),
        ({"is_error": True}, "error"),
        ({"content": [], "is_error": True}, "error"),
        ({}, ""),
        ({"content": []}, ""),
    ],
)
def test_a_failed_tools_text_stands_as_it_is_and_a_silent_failure_says_so(fields, content):
    assert chat(user({"type": "tool_result", "tool_use_id": "t", **fields}))[0]["content"] == content


def test_a_call_without_text_has_no_content():
    use = {"type": "tool_use", "id": "t", "name": "now", "input": {}}
    message = chat(user(text("?")), assistant(use))[1]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_thinking_is_reasoning_and_redacted_thinking_is_left_out():
    thoughts = [{"type": "thinking", "thinking": said, "signature": "s"} for said in ("first ", " then")]
    hidden = {"type": "redacted_thinking", "data": "x"}
    message = chat(user(text("?")), assistant(*thoughts, hidden, text("4")), user(text("!")))[1]
    assert message == {"role": "assistant", "content": "4", "reasoning_content": "first  then"}
    omitted = {"type": "thinking", "thinking": "", "signature": "s"}
    assert "reasoning_content" not in chat(user(text("?")), assistant(omitted, text("4")), user(text("!")))[1]


def test_a_text_document_is_its_title_context_and_text():
    source = {"type": "text", "media_type": "text/plain", "data": "line\n"}
    document = {
        "type": "document",
        "source": source,
        "title": "T",
        "context": "C",
        "citations": {"enabled": True},
    }
    assert chat(user(document, text("?")))[0]["content"] == [part("T"), part("C"), part("line\n"), part("?")]
    blocks = {"type": "document", "source": {"type": "content", "content": [text("a"), IMAGE]}, "title": None}
    assert chat(user(blocks))[0]["content"] == [part("a"), IMAGE_PART]


def test_a_search_result_is_its_title_source_and_texts():
    found = {"type": "search_result", "title": "T", "source": "https://a", "content": [text("x"), text("y")]}
    assert chat(user(found))[0]["content"] == [part("T"), part("https://a"), part("x"), part("y")]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}},
        {"type": "document", "source": {"type": "file", "file_id": "f"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "container_upload", "file_id": "f"},
    ],
)
def test_what_only_anthropic_understands_is_named_and_kept_for_the_record(block):
    request = read(messages=[user(text("?"), block)])
    assert request.native_only.param == "messages.0.content.1"
    assert block["type"] in str(request.native_only)
    assert request.native_only.status == 400
    assert request.chat["messages"][0]["content"][1] == block


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hello", "messages.0"),
        ({"content": "x"}, "messages.0.role"),
        ({"role": "tool", "content": "x"}, "messages.0.role"),
        ({"role": "user"}, "messages.0.content"),
        (user("x"), "messages.0.content.0"),
        (user({"text": "x"}), "messages.0.content.0"),
        (user({"type": "text"}), "messages.0.content.0.text"),
        (user({"type": "text", "text": 1}), "messages.0.content.0.text"),
        (user({"type": "image"}), "messages.0.content.0.source"),
        (
            user({"type": "image", "source": {"type": "base64", "data": ""}}),
            "messages.0.content.0.source.media_type",
        ),
        (user({"type": "tool_result"}), "messages.0.content.0.tool_use_id"),
        (user({"type": "tool_result", "tool_use_id": "t", "content": 1}), "messages.0.content.0.content"),
        (assistant({"type": "tool_use", "id": "t", "name": "n"}), "messages.0.content.0.input"),
        (assistant({"type": "tool_use", "id": "t", "input": {}}), "messages.0.content.0.name"),
        (assistant({"type": "thinking"}), "messages.0.content.0.thinking"),
        (user({"type": "document", "source": {"type": "text"}}), "messages.0.content.0.source.data"),
        (user({"type": "search_result", "source": "a"}), "messages.0.content.0.title"),
    ],
)
def test_a_wrong_shape_names_its_place(message, param):
    with pytest.raises(CallRefusedError) as caught:
        read(messages=[message])
    assert (caught.value.status, caught.value.param) == (400, param)


def test_what_is_nested_without_end_is_refused_or_left_to_anthropic():
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    body = orjson.dumps({**HELLO, "messages": [assistant(call)]})
    depth = 1000  # Python's json writes less, orjson reads more
    with pytest.raises(CallRefusedError) as caught:
        DIALECT.request(body.replace(b"{}", b'{"a":' * depth + b"1" + b"}" * depth))
    assert caught.value.code == "nested_too_deep"
    inner = text("x")
    for _ in range(60):
        inner = {"type": "document", "source": {"type": "content", "content": [inner]}}
    assert read(messages=[user(inner)]).native_only.param == "messages.0.content.0.source.content.0"


@pytest.mark.parametrize("messages", [None, [], "hello", {}])
def test_messages_are_a_list(messages):
    with pytest.raises(CallRefusedError) as caught:
        read(messages=messages)
    assert caught.value.param == "messages"


def test_arguments_are_written_as_models_write_them():
    assert arguments_text({"a": 1.0, "b": ["ü", None]}) == '{"a": 1.0, "b": ["ü", null]}'
