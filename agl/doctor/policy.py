"""The policy's tokenizer and chat template: whether they load, and bear what training does with them."""

from __future__ import annotations

from typing import Any, cast

from agl.doctor.findings import Finding, failure, fine, warning
from agl.errors import InferenceError
from agl.inference.chat import encode_prompt, parse_request
from agl.inference.huggingface import load_tokenizer
from agl.types import Policy

QUESTION = "What is 2 + 3?"
ANSWER = "2 + 3 = 5"
NEXT = "And 3 + 4? \u00e4\u20ac"


def tokenizer(policy: Policy) -> list[Finding]:
    """Look at the tokenizer and chat template of a policy."""
    return findings_from(load_tokenizer(policy))


def findings_from(loaded: Any) -> list[Finding]:
    """Return the findings for a tokenizer that is loaded."""
    words = f"{type(loaded).__name__}, {len(loaded):,} tokens"
    try:
        asked = _ids(loaded, [("user", QUESTION)])
    except InferenceError as error:
        fix = "set policy.chat_template to a Jinja file that renders user and assistant messages"
        return [fine("tokenizer", words), failure("chat template", str(error), fix)]
    return [_round_trip(loaded, words), *_ends(loaded), _opening(loaded), _prefix(loaded, asked)]


def _ids(loaded: Any, said: list[tuple[str, str]]) -> list[int]:
    """The exact prompt that the engine makes of a conversation."""
    messages = [{"role": role, "content": text} for role, text in said]
    return encode_prompt(parse_request({"messages": messages}, model=""), loaded)


def _round_trip(loaded: Any, words: str) -> Finding:
    text = f"{QUESTION}\n{ANSWER}\n{NEXT}"
    again = loaded.decode(loaded.encode(text, add_special_tokens=False), skip_special_tokens=False)
    if again != text:
        fix = "agents see what the ids give; for a tokenizer that forgets spaces or cases that is expected"
        return warning("tokenizer", f"{words}; ids give back {again!r:.80} of {text!r:.80}", fix)
    return fine("tokenizer", f"{words}; text -> ids -> text gives the same text")


def _ends(loaded: Any) -> list[Finding]:
    end, pad = loaded.eos_token, loaded.pad_token
    if end is None:
        fix = "set eos_token in tokenizer_config.json, or eos_token_id in generation_config.json: no answer would end"
        return [failure("end token", "the tokenizer names none", fix)]
    if pad is not None and pad == end:
        return [fine("end token", f"{end}, which also pads")]
    return [
        fine("end token", f"{end}; {'no padding token, none is needed' if pad is None else f'{pad} pads'}")
    ]


def _opening(loaded: Any) -> Finding:
    """Whether the template opens the answer, so that the policy does not have to say who speaks."""
    message = [{"role": "user", "content": QUESTION}]
    with_it, without = (
        cast("str", loaded.apply_chat_template(message, add_generation_prompt=opens, tokenize=False))
        for opens in (True, False)
    )
    if with_it == without or not with_it.startswith(without):
        fix = "give policy.chat_template a Jinja file that heeds add_generation_prompt"
        return warning("chat template", "it does not open the assistant's answer", fix)
    return fine("chat template", f"it opens the answer with {with_it[len(without) :]!r}")


def _prefix(loaded: Any, asked: list[int]) -> Finding:
    """Whether a conversation's next prompt begins with all ids of the one before and of its answer."""
    answered = [*asked, *loaded.encode(ANSWER, add_special_tokens=False)]
    if loaded.eos_token_id is not None:
        answered.append(loaded.eos_token_id)
    following = _ids(loaded, [("user", QUESTION), ("assistant", ANSWER), ("user", NEXT)])
    same = next(
        (i for i, (one, other) in enumerate(zip(answered, following, strict=False)) if one != other), None
    )
    if same is None and len(following) >= len(answered):
        return fine(
            "turns", "each prompt begins with the turn before: conversations are trained as one sequence"
        )
    place = len(asked) if same is None else same
    where = "its question" if place < len(asked) else "its answer"
    fix = "each turn is trained as a sequence of its own, which takes longer; a template that keeps turns merges them"
    return warning("turns", f"a later prompt renders an earlier turn otherwise (in {where})", fix)
