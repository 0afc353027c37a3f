"""The scripted model: an assistant that does what its prompt says and little else, and an optimizer that reads it.

As the assistant it looks up the rooms and picks one. Six habits make the pick right; each is kept on some requests, and
on nearly all once the prompt asks for it. As the optimizer it looks for broken rules in the transcripts it is
shown, names one or two, and writes instructions against them: mostly good ones, sometimes useless or harmful.
The rules and rates stand in tables below, and in the README.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from .office import NONE, Listed, Request, requests_in, rooms_in

# --- What instructions do ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Habit:
    """One thing that makes answers right.

    Args:
        asked_for: what an instruction must say (a regular expression, case ignored).
        unasked: the part of the requests on which it is done without an instruction.
        complaint: how the optimizer says that it was not done.
        advice: an instruction that asks for it.
    """

    asked_for: str
    unasked: float
    complaint: str
    advice: str


HABITS = {
    "period": Habit(
        r"(whole|entire|full) (period|time|meeting|duration|slot)|until (the|its) end",
        0.55,
        "It books rooms that somebody else has before the meeting is over.",
        "Check that the room is free for the whole period of the meeting, not only when it begins.",
    ),
    "equipment": Habit(
        r"equipment|every(thing| item) (that is )?(asked|needed)",
        0.6,
        "It books rooms without the equipment that was asked for.",
        "The room must have all of the equipment that the request names.",
    ),
    "access": Habit(
        r"step-free|wheelchair|accessib",
        0.5,
        "It books rooms with stairs for people in a wheelchair.",
        "If somebody uses a wheelchair, book a step-free room only.",
    ),
    "smallest": Habit(
        r"smallest|fewest seats",
        0.45,
        "It books larger rooms than the meeting needs.",
        "Of the rooms that fit, book the smallest one, of equals the first by name.",
    ),
    "none": Habit(
        r"\bnone\b",
        0.4,
        "It books a room that does not fit where no room fits.",
        "If no room fits, the answer is none.",
    ),
    "format": Habit(
        r"ROOM:|last line",
        0.6,
        "Its answer does not end in the line that is read: ROOM: and the name.",
        "End your answer with one line of this form: ROOM: and the name of the room.",
    ),
}
ASKED = 0.97
"""The part of the requests on which a habit is kept once an instruction asks for it."""
FORGETFUL_WORDS, FORGETFUL = 200, 0.8
"""In a prompt of more words than these an instruction is kept on this part of the requests only."""
GUESSES = r"from memory|without the tool|do not use the tool"
"""An instruction like this makes it guess."""
RAMBLES = r"step by step|explain your|in detail"
"""One like this makes it forget the last line on this part of the requests:"""
RAMBLING = 0.3

# --- How good the optimizer is ----------------------------------------------------------------------------------------

MISREAD = 0.15
"""Critiques that name nothing that was seen."""
SECOND = 0.5
"""Critiques that name a second rule, where two were broken."""
VAGUE, HARMFUL, CARELESS = 0.2, 0.12, 0.05
"""Rewrites that only seem to address a critique; that add a harmful line; that lose the placeholder."""
NUM_RANDOM = 2
"""Lines that a rewrite without a critique adds, drawn from all advice below."""
BLAND = (
    "Be polite and professional.",
    "Read the request carefully.",
    "Double-check your work.",
    "Use a friendly tone.",
    "Keep your answer short.",
    "You are an expert in office management.",
    "Take the needs of the organizer seriously.",
    "Aim for a booking that everybody is happy with.",
    "Think about what could go wrong.",
    "Be consistent.",
    "Your work is important to the company.",
    "Avoid mistakes.",
)
HARM = (
    "Answer from memory where you can: it is faster.",
    "Explain your reasoning step by step in detail.",
)


def answer(request: Mapping[str, Any], seed: str) -> dict[str, Any]:
    """Return the scripted model's message: the assistant's where there are tools, else the optimizer's."""
    if request.get("tools"):
        return _assistant(request["messages"], seed)
    text = "\n".join(_text(message) for message in request["messages"])
    return {"content": _optimizer(text, Random(f"{seed}/{text}"))}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


# --- The assistant ----------------------------------------------------------------------------------------------------


def _assistant(messages: list[Mapping[str, Any]], seed: str) -> dict[str, Any]:
    told = "\n".join(_text(message) for message in messages if message["role"] in ("system", "user"))
    found = requests_in(told)
    if not found:
        return {"content": "Which room do you need, and when?"}
    begin, end, request = found[-1]
    prompt = told[:begin] + told[end:]
    rooms = rooms_in("\n".join(_text(message) for message in messages if message["role"] == "tool"))
    if not rooms and not re.search(GUESSES, prompt, re.IGNORECASE):
        call = {"name": "list_rooms", "arguments": json.dumps({"date": request.date})}
        return {"tool_calls": [{"id": "call_rooms", "type": "function", "function": call}]}
    kept = {name for name, habit in HABITS.items() if _keeps(name, habit, prompt, request, seed)}
    if re.search(RAMBLES, prompt, re.IGNORECASE) and _chance("rambles", request, seed) < RAMBLING:
        kept.discard("format")
    room = pick(request, rooms, kept) if rooms else "Maple"
    if "format" not in kept:
        return {
            "content": "Sorry, there is no room." if room == NONE else f"{room} would be a good room for you."
        }
    return {"content": f"This is the room for your meeting.\nROOM: {room}"}


def _keeps(name: str, habit: Habit, prompt: str, request: Request, seed: str) -> bool:
    rate = habit.unasked
    if re.search(habit.asked_for, prompt, re.IGNORECASE):
        rate = FORGETFUL if len(prompt.split()) > FORGETFUL_WORDS else ASKED
    return _chance(name, request, seed) < rate


def _chance(name: str, request: Request, seed: str) -> float:
    """The same for a request under every prompt: better prompts are better on the same requests."""
    return Random(f"{seed}/{name}/{request}").random()


def pick(request: Request, rooms: list[Listed], kept: set[str]) -> str:
    """Return the room that somebody with these habits books."""
    end = request.start + (request.minutes if "period" in kept else 1)
    fitting = [
        listed.room
        for listed in rooms
        if listed.room.seats >= request.people
        and listed.is_free(request.start, end)
        and ("equipment" not in kept or listed.room.equipment.issuperset(request.needs))
        and ("access" not in kept or listed.room.step_free or not request.step_free)
    ]
    if fitting:
        return (min if "smallest" in kept else max)(fitting, key=lambda room: (room.seats, room.name)).name
    return NONE if "none" in kept else rooms[0].room.name


# --- The optimizer ----------------------------------------------------------------------------------------------------


def _optimizer(text: str, rng: Random) -> str:
    prompt = _between(text, r"<prompt>\n(.*?)\n</prompt>") or _between(text, r"```\w*\n(.*?)\n```")
    broken = broken_rules(text)
    if prompt is None:
        return _critique(broken, rng)
    if broken:  # transcripts and prompt in one question: critique and rewrite in one go
        return f"```\n{_rewrite(prompt, _critique(broken, rng), rng)}\n```"
    return f"<prompt>\n{_rewrite(prompt, text, rng)}\n</prompt>"


def _between(text: str, pattern: str) -> str | None:
    found = re.search(pattern, text, re.DOTALL)
    return found.group(1) if found else None


def broken_rules(text: str) -> Counter[str]:
    """Return which habits were not kept in the conversations in a text, by what each shows: request, rooms, answer."""
    places = requests_in(text)
    nexts = [*(begin for begin, _, _ in places[1:]), len(text)]
    found = (
        broken_rule(request, text[end:following])
        for (_, end, request), following in zip(places, nexts, strict=False)
    )
    return Counter(name for name in found if name is not None)


def broken_rule(request: Request, conversation: str) -> str | None:
    """Return the first habit that the answer of a conversation breaks; None for a right one, or one without rooms."""
    rooms = {listed.room.name: listed for listed in rooms_in(conversation)}
    if not rooms:
        return None
    answers = re.findall(r"^ROOM: (\w+)", conversation, re.MULTILINE)
    if not answers:
        return "format"
    right = pick(request, list(rooms.values()), set(HABITS))
    booked = rooms.get(answers[-1])
    if answers[-1] == right:
        return None
    if booked is None:
        return None
    if right == NONE and booked == next(iter(rooms.values())):  # what it takes where it must take one
        return "none"
    if not booked.is_free(request.start, request.start + request.minutes):
        return "period"
    if not booked.room.equipment.issuperset(request.needs):
        return "equipment"
    if request.step_free and not booked.room.step_free:
        return "access"
    return "smallest"


def _critique(broken: Counter[str], rng: Random) -> str:
    if not broken or rng.random() < MISREAD:
        return "The tone of the answers is impersonal, and the prompt says too little about the company."
    names = sorted(broken, key=lambda name: (-broken[name], rng.random()))
    named = names[: 2 if rng.random() < SECOND else 1]
    return "\n".join(f"{HABITS[name].complaint} The prompt must forbid it." for name in named)


def _rewrite(prompt: str, critique: str, rng: Random) -> str:
    named = [name for name, habit in HABITS.items() if habit.complaint in critique]
    advice = [
        rng.choice(BLAND) if rng.random() < VAGUE else HABITS[name].advice
        for name in named
        if HABITS[name].advice not in prompt
    ]
    if "What is wrong with it" not in critique and not named:
        advice = rng.sample([*(habit.advice for habit in HABITS.values()), *BLAND, *HARM], NUM_RANDOM)
    elif not advice:
        advice = [rng.choice(BLAND)]
    if rng.random() < HARMFUL:
        advice.append(rng.choice(HARM))
    lines = [line for line in advice if line not in prompt]
    rewritten = "\n".join([prompt.rstrip(), *lines]) if lines else f"{prompt.rstrip()}\nThank you."
    return rewritten.replace("{request}", "the request") if rng.random() < CARELESS else rewritten
