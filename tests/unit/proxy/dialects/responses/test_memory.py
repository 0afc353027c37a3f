import json
from pathlib import Path

import orjson
from responses_exchange import HELLO, canonical, function_call

from agl.proxy.dialects.openai_responses import OpenAIResponses
from agl.proxy.dialects.responses.answers import output_items, response_id
from agl.proxy.dialects.responses.memory import ResponseMemory

DATA = Path(__file__).parents[4] / "data"
AGENTS_SDK = json.loads((DATA / "openai_agents_requests.json").read_text())["requests"]
CALL = function_call("call_1", "weather", '{"city": "Oslo"}')


def unknown(memory, **fields):
    """Return whether the memory leaves the request to its provider."""
    return memory.resolved(asked(**fields)).native_only is not None


def asked(**fields):
    return OpenAIResponses().request(orjson.dumps({**HELLO, **fields}))


def answered(memory, answer, **fields):
    request = memory.resolved(asked(**fields))
    memory.remember(request, answer)
    return response_id(request, answer["id"])


def named(text, answer_id):
    return {**canonical({"content": text}), "id": answer_id}


def test_a_request_that_refers_to_nothing_is_itself():
    request = asked()
    assert ResponseMemory().resolved(request) is request


def test_a_response_is_gone_on_from_with_new_instructions_only():
    memory = ResponseMemory()
    first = answered(memory, named("Hi\n", "chatcmpl-1"), instructions="Old rules.")
    second = answered(memory, named("Bern", "chatcmpl-2"), input="Capital?", previous_response_id=first)
    request = memory.resolved(asked(input="Why?", instructions="New rules.", previous_response_id=second))
    assert request.chat["messages"] == [
        {"role": "system", "content": "New rules."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Hi\n"},
        {"role": "user", "content": "Capital?"},
        {"role": "assistant", "content": "Bern"},
        {"role": "user", "content": "Why?"},
    ]
    assert request.native["input"] == "Why?"


def test_a_response_can_be_gone_on_from_twice():
    memory = ResponseMemory()
    first = answered(memory, named("Hi", "chatcmpl-1"))
    for text in ("one", "two"):
        request = memory.resolved(asked(input=text, previous_response_id=first))
        assert [message["content"] for message in request.chat["messages"]] == ["hello", "Hi", text]


def test_the_agents_sdk_s_outputs_of_tools_find_their_calls():
    memory = ResponseMemory()
    first, second = ({**native} for native in AGENTS_SDK["previous_response_id"])
    answer = canonical({"reasoning_content": "Hm.", "tool_calls": [CALL]}, finish_reason="tool_calls")
    second["previous_response_id"] = answered(memory, answer, **first)
    request = memory.resolved(asked(**second))
    assert request.chat["messages"][2:] == [
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18 C in Oslo\n"},
    ]


def test_a_reference_to_an_item_is_the_item():
    memory = ResponseMemory()
    request, answer = asked(), canonical({"content": "I look.", "tool_calls": [CALL]})
    memory.remember(request, answer)
    said, call = output_items(request, answer)
    items = [
        {"role": "user", "content": "hello"},
        {"type": "item_reference", "id": said["id"]},
        {"id": call["id"]},
    ]
    output = {"type": "function_call_output", "call_id": "call_1", "output": "18"}
    resolved = memory.resolved(asked(input=[*items, output]))
    assert resolved.chat["messages"] == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "18"},
    ]


def test_reasoning_that_comes_back_without_its_text_gets_it_again():
    memory = ResponseMemory()
    request, answer = asked(), canonical({"content": "Hi", "reasoning_content": "Hm."})
    memory.remember(request, answer)
    reasoning, said = output_items(request, answer)
    stripped = {"type": "reasoning", "id": reasoning["id"], "summary": []}
    resolved = memory.resolved(asked(input=[stripped, said, {"role": "user", "content": "go on"}]))
    assert resolved.chat["messages"][0] == {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}
    elsewhere = asked(input=[{**stripped, "id": "rs_other"}, said])
    assert memory.resolved(elsewhere) is elsewhere


def test_what_else_a_chat_cannot_do_stays_with_the_provider():
    memory = ResponseMemory()
    first = answered(memory, named("Hi", "chatcmpl-1"))
    request = memory.resolved(asked(previous_response_id=first, tools=[{"type": "web_search"}]))
    assert request.native_only is not None
    assert request.native_only.param == "tools[0]"
    assert [message["content"] for message in request.chat["messages"]] == ["hello", "Hi", "hello"]


def test_an_unknown_response_is_refused_with_openai_s_code():
    request = ResponseMemory().resolved(asked(previous_response_id="resp_gone"))
    refusal = request.native_only
    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.param) == (
        400,
        "previous_response_not_found",
        "previous_response_id",
    )
    assert "'resp_gone' not found" in str(refusal)


def test_an_unknown_item_is_refused():
    request = ResponseMemory().resolved(asked(input=[{"type": "item_reference", "id": "msg_gone"}]))
    assert "'msg_gone' not found" in str(request.native_only)


def test_a_response_that_was_not_to_be_stored_is_not_remembered():
    memory = ResponseMemory()
    first = answered(memory, canonical({"content": "Hi"}), store=False)
    assert unknown(memory, previous_response_id=first)


def test_the_oldest_responses_are_forgotten():
    memory = ResponseMemory(max_responses=2)
    ids = [answered(memory, named("Hi", f"chatcmpl-{number}")) for number in range(3)]
    assert unknown(memory, previous_response_id=ids[0])
    for known in ids[1:]:
        assert not unknown(memory, previous_response_id=known)


def test_large_conversations_push_out_older_ones_but_the_newest_stays():
    memory = ResponseMemory(max_bytes=3000)
    ids = [answered(memory, named("x" * 1000, f"chatcmpl-{number}")) for number in range(3)]
    assert not unknown(memory, previous_response_id=ids[1])
    assert unknown(memory, previous_response_id=ids[0])
    large = answered(memory, named("x" * 9000, "chatcmpl-9"))
    assert not unknown(memory, previous_response_id=large)
    assert unknown(memory, previous_response_id=ids[2])


def test_a_repeated_answer_is_remembered_once():
    memory = ResponseMemory(max_responses=2)
    first = answered(memory, named("Hi", "chatcmpl-1"))
    for _ in range(5):
        answered(memory, named("Hi", "chatcmpl-2"))
    assert not unknown(memory, previous_response_id=first)


def test_a_conversation_whose_beginning_was_forgotten_meanwhile_is_not_remembered():
    memory = ResponseMemory(max_responses=1)
    first = answered(memory, named("Hi", "chatcmpl-1"))
    request = memory.resolved(asked(input="more", previous_response_id=first))
    answered(memory, named("other", "chatcmpl-2"), input="other")
    memory.remember(request, named("late", "chatcmpl-3"))
    assert unknown(memory, previous_response_id=response_id(request, "chatcmpl-3"))
