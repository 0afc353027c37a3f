"""A recorded conversation as items: there and back it is the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agl.proxy.dialects.responses.history import items_from_messages
from agl.proxy.dialects.responses.items import messages_from_items

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
SECOND = {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}}


def test_every_kind_of_message_comes_back_as_it_was():
    messages = [
        {"role": "developer", "content": "be kind"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": " look:\n"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
                {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a"}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
            ],
        },
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL, SECOND]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18\n"},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "noon"}]},
        {"role": "assistant", "content": "It is warm. "},
        {"role": "user", "content": "thanks"},
        {"role": "assistant", "content": None, "refusal": "no"},
    ]
    assert messages_from_items(None, items_from_messages(messages)) == messages


texts = st.text(max_size=6)
users = st.builds(lambda said: {"role": "user", "content": said}, texts)
answers = st.builds(lambda said: {"role": "assistant", "content": said}, texts)
thoughts = st.builds(
    lambda said, thought: {"role": "assistant", "content": said, "reasoning_content": thought},
    texts,
    st.text(min_size=1, max_size=6),
)


@given(st.lists(st.tuples(users, st.one_of(answers, thoughts)), max_size=4), users)
def test_any_texts_come_back_to_the_last_blank(turns, last):
    messages = [*(message for turn in turns for message in turn), last]
    assert messages_from_items(None, items_from_messages(messages)) == messages
