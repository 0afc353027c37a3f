"""what=sft: chosen as algorithm=sft chooses, read again by it, and right by OpenAI's own checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_learner import ChatLearner
from chat_tokens import chat_tokens, masked_texts
from recorded_runs import call, rollout, store_file

from agl.adapters.trace import TracerTraceToTriplet
from agl.algorithms.sft import SFT
from agl.algorithms.tuning.chat_files import examples_of_files
from agl.algorithms.tuning.examples import curated
from agl.algorithms.tuning.past_runs import examples_of_stores
from agl.errors import AglError, ConfigError
from agl.export.chats import ChatExport
from agl.export.origin import Origin
from agl.store.opening import store_to_read
from agl.types import Span
from agl.types import attributes as key

TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
]


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def conversation(number: int, place: int, said: str, *, call_id: str = "c1", **attributes: Any) -> list[Span]:
    """A call of a tool, its result, and an answer."""
    asks = {
        **answer(""),
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
        ],
    }
    result = {"role": "tool", "tool_call_id": call_id, "content": "3"}
    return [
        call(number, place, [user("1+2?")], asks, tools=TOOLS),
        call(number, place + 1, [user("1+2?"), asks, result], answer(said), tools=TOOLS, **attributes),
    ]


SAME = {"question": "same"}
ROLLOUTS = [
    rollout(1, task=SAME, reward=1.0),
    rollout(2, task=SAME, reward=1.0),  # says the same as the first
    rollout(3, task=SAME, reward=2.0),
    rollout(4, reward=0.5),
    rollout(5, reward=None),
    rollout(6, reward=1.0),  # cut off
    rollout(7, reward=1.0),  # made no call
    rollout(8, reward=1.0, mode="val"),
    rollout(9, reward=1.0, status="failed"),
    rollout(10, reward=1.5),
    rollout(11, reward=2.0, metadata={"replay_of": "ro-10"}),
]
SPANS = [
    *conversation(1, 1, "three"),
    *conversation(2, 11, "three", call_id="c2"),
    *conversation(3, 21, "it is 3"),
    *conversation(4, 31, "four"),
    *conversation(5, 41, "five"),
    *conversation(6, 51, "si", **{key.FINISH_REASONS: ["length"]}),
    *conversation(8, 61, "eight"),
    *conversation(9, 71, "nine"),
    call(10, 81, [user("hello")], answer("ten")),
    call(11, 91, [user("hello")], answer("ten")),
]


async def exported(folder: Path, **settings: Any) -> tuple[list[dict[str, Any]], Any]:
    run = await store_file(folder / "run", rollouts=ROLLOUTS, spans=SPANS)
    origin = Origin(store=lambda: store_to_read(str(run)))
    done = await ChatExport(**settings).write(origin, folder / "sft.jsonl", force=True)
    return [json.loads(line) for line in (folder / "sft.jsonl").read_bytes().splitlines()], done


def last(line: dict[str, Any]) -> str:
    return line["messages"][-1]["content"]


async def test_good_interactions_are_chosen_and_the_others_counted_by_cause(tmp_path: Path) -> None:
    lines, done = await exported(tmp_path)
    assert [last(line) for line in lines] == ["three", "it is 3", "ten"]
    assert done.counts == {"conversations": 3, "rollouts": 3}
    assert dict(done.left_out) == {
        "duplicate": 1,
        "below_reward": 1,
        "without_reward": 1,
        "cut_off": 1,
        "no_calls": 1,
        "replay": 1,
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"top_k": 1}, ["it is 3", "ten"]),
        ({"dedupe": False}, ["three", "three", "it is 3", "ten"]),
        ({"min_reward": 1.5}, ["it is 3", "ten"]),
        ({"mode": "val"}, ["eight"]),
        ({"mode": None, "min_reward": 1.0, "top_k": 1}, ["it is 3", "eight", "ten"]),
    ],
)
async def test_settings_choose(tmp_path: Path, settings: dict[str, Any], said: list[str]) -> None:
    lines, _ = await exported(tmp_path, **settings)
    assert [last(line) for line in lines] == said


@pytest.mark.parametrize("settings", [{}, {"top_k": 1}, {"dedupe": False, "min_reward": 0.5}])
async def test_sft_learns_the_same_from_the_file_as_from_the_store(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """The file read by algorithm=sft, against algorithm=sft on the store itself: the very same tokens and masks."""
    await exported(tmp_path, **settings)
    learner, adapter = ChatLearner(), TracerTraceToTriplet()
    from_file, refused = await examples_of_files([str(tmp_path / "sft.jsonl")], learner)
    assert not refused
    sft = SFT(stores=(str(tmp_path / "run"),), store_tokens="template", **settings)
    given, _ = await examples_of_stores(sft, adapter, learner, min_reward=sft.min_reward)
    chosen = curated(given, min_reward=sft.min_reward, top_k=sft.top_k, dedupe=False)
    whole = [one for one in chosen.examples if not one.example_id.endswith("#ro-6")]  # a template sees no cut
    wanted = {masked(one) for one in whole}
    assert {masked(one) for one in from_file} == wanted
    if sft.dedupe:
        assert len(from_file) == len(wanted)


def masked(example: Any) -> tuple[Any, ...]:
    chat = chat_tokens()
    return tuple((tuple(one.token_ids), tuple(masked_texts(one, chat))) for one in example.trajectories)


KEYS = {"role", "content", "name", "function_call", "weight", "tool_calls", "tool_call_id"}
ROLES = {"system", "user", "assistant", "tool", "function"}


def openai_errors(line: Any) -> list[str]:
    """OpenAI's own checks of a line.

    Sources: "Data preparation and analysis for chat model fine-tuning" of its cookbook, whose checks these are, and for
    tools https://platform.openai.com/docs/guides/fine-tuning: each tool call is answered by a tool message with its id.
    """
    if not isinstance(line, dict):
        return ["data_type"]
    messages = line.get("messages")
    if not messages:
        return ["missing_messages_list"]
    errors = [error for message in messages for error in openai_message_errors(message)]
    open_calls: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            open_calls.discard(message["tool_call_id"])
        elif open_calls:
            errors.append("unanswered_call")
        open_calls |= {one["id"] for one in message.get("tool_calls", [])}
    if messages[-1]["role"] != "assistant" or messages[-1].get("weight") == 0:
        errors.append("example_missing_assistant_message")
    named = {tool["function"]["name"] for tool in line.get("tools", [])}
    used = {one["function"]["name"] for message in messages for one in message.get("tool_calls", [])}
    return errors + ["undeclared_tool"] * bool(used - named)


def openai_message_errors(message: dict[str, Any]) -> list[str]:
    found = {
        "message_missing_key": "role" not in message or "content" not in message,
        "message_unrecognized_key": bool(set(message) - KEYS),
        "unrecognized_role": message.get("role") not in ROLES,
        "missing_content": not isinstance(message.get("content"), str) and not message.get("tool_calls"),
        "bad_weight": message.get("weight") not in (None, 0, 1),
    }
    return [name for name, broken in found.items() if broken]


async def test_every_line_passes_openais_checks(tmp_path: Path) -> None:
    lines, _ = await exported(tmp_path, mode=None, min_reward=0.0, dedupe=False)
    assert len(lines) == 6
    assert [openai_errors(line) for line in lines] == [[]] * 6
    assert lines[0]["tools"] == TOOLS
    assert "tools" not in lines[-1]


async def test_nothing_good_enough_says_what_was_left_out(tmp_path: Path) -> None:
    with pytest.raises(
        AglError,
        match=r"no succeeded train rollout with min_reward=9 \(left out: below_reward 7, without_reward 1, replay 1\)",
    ):
        await exported(tmp_path, min_reward=9.0)
    assert not (tmp_path / "sft.jsonl").exists()


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="top_k=0"):
        ChatExport(top_k=0)
    with pytest.raises(ConfigError, match="agents"):
        ChatExport(agents=())
