import pytest

from agl.proxy.dialects.responses.items import messages_from_items, reasoning_text, referenced_id
from agl.proxy.refusal import CallRefusedError

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{ "city":"Zürich" }',
}
OTHER_CALL = {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "18 C\n"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "In short."}],
    "content": [{"type": "reasoning_text", "text": "Look it "}, {"type": "reasoning_text", "text": "up.\n"}],
}


def said(text, **more):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part], **more}


def test_instructions_are_the_first_message_and_texts_keep_their_whitespace():
    items = [
        {"role": "user", "content": "\n hi \n"},
        {"type": "message", "role": "developer", "content": "be brief"},
    ]
    assert messages_from_items(" Rules.\n", items) == [
        {"role": "system", "content": " Rules.\n"},
        {"role": "user", "content": "\n hi \n"},
        {"role": "developer", "content": "be brief"},
    ]


def test_the_items_of_one_answer_are_one_message():
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{ "city":"Zürich" }'},
    }
    other = {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    assert messages_from_items(None, [REASONING, said("I look. "), CALL, OTHER_CALL, OUTPUT]) == [
        {
            "role": "assistant",
            "content": "I look. ",
            "reasoning_content": "Look it up.\n",
            "tool_calls": [call, other],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "18 C\n"},
    ]


def test_a_text_after_a_call_without_its_output_belongs_to_the_same_answer():
    (message,) = messages_from_items(None, [said("a "), CALL, said(" b")])
    assert message["content"] == "a  b"
    assert len(message["tool_calls"]) == 1


def test_two_messages_in_a_row_stay_two():
    messages = messages_from_items(None, [said("one"), said("two")])
    assert [message["content"] for message in messages] == ["one", "two"]


def test_reasoning_begins_a_new_answer_behind_a_finished_one():
    messages = messages_from_items(None, [said("one"), REASONING, said("two")])
    assert messages == [
        {"role": "assistant", "content": "one"},
        {"role": "assistant", "content": "two", "reasoning_content": "Look it up.\n"},
    ]


def test_a_summary_is_not_the_reasoning():
    assert reasoning_text({"summary": [{"type": "summary_text", "text": "In short."}]}) == ""
    assert messages_from_items(None, [{**REASONING, "content": None, "encrypted_content": "gA=="}]) == []


def test_a_refusal_stays_a_refusal():
    item = said("", content=[{"type": "refusal", "refusal": "I will not."}])
    assert messages_from_items(None, [item, CALL])[0]["refusal"] == "I will not."
    assert messages_from_items(None, [item])[0]["content"] is None


def test_images_files_and_sound_are_parts_of_a_message():
    content = [
        {"type": "input_text", "text": "what is "},
        {"type": "input_image", "detail": "low", "image_url": "data:image/png;base64,AA=="},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": None},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    (message,) = messages_from_items(None, [{"role": "user", "content": content}])
    assert message["content"] == [
        {"type": "text", "text": "what is "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]


def test_a_tool_may_answer_with_parts():
    item = {**OUTPUT, "output": [{"type": "input_text", "text": "18"}]}
    assert messages_from_items(None, [item])[0]["content"] == [{"type": "text", "text": "18"}]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ("hello", "input[0]"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [7]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "video"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}, "input[0].content[0]"),
        (
            {"role": "user", "content": [{"type": "input_file", "file_url": "https://x"}]},
            "input[0].content[0]",
        ),
        ({"role": "assistant", "content": [{"type": "input_image"}]}, "input[0].content[0].type"),
        ({**CALL, "call_id": None}, "input[0].call_id"),
        ({**CALL, "arguments": {}}, "input[0].arguments"),
        ({**OUTPUT, "output": None}, "input[0].output"),
        ({"type": "web_search_call", "id": "ws_1"}, "input[0]"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "i"}, "input[0]"),
        ({}, "input[0]"),
    ],
)
def test_what_a_chat_cannot_hold_is_refused_by_its_place(item, param):
    with pytest.raises(CallRefusedError) as caught:
        messages_from_items(None, [item])
    assert (caught.value.status, caught.value.param) == (400, param)
    assert messages_from_items(None, [item, said("ok")], lenient=True) == [
        {"role": "assistant", "content": "ok"}
    ]


@pytest.mark.parametrize("item", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}])
def test_a_reference_is_refused_for_whoever_knows_the_item_replaces_it(item):
    assert referenced_id(item) == "msg_1"
    with pytest.raises(CallRefusedError) as caught:
        messages_from_items(None, [item])
    assert (caught.value.code, caught.value.param) == ("item_not_found", "input[0]")
    assert messages_from_items(None, [item, said("ok")], lenient=True) == [
        {"role": "assistant", "content": "ok"}
    ]


def test_other_items_are_no_references():
    assert [referenced_id(item) for item in (said("ok"), CALL, {"role": "user", "id": "x"}, "x", None)] == [
        None
    ] * 5
