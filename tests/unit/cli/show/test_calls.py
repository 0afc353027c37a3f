"""The conversation of an attempt."""

from __future__ import annotations

from listed_records import made_call

from agl.adapters.exchanges import exchanges_from_spans
from agl.cli.show.calls import call_lines, calls_as_json
from agl.types import attributes as key

OF = {"rollout_id": "r", "attempt_id": "a"}
ASKED = [{"role": "user", "content": "2+2?\nbe brief"}]
ANSWER = {"role": "assistant", "content": "4 \x1b[31m"}


def test_a_call_says_model_version_tokens_time_and_end() -> None:
    span = made_call(1, ASKED, ANSWER, seconds=2.0, **OF, **{key.AGENT: "writer"})
    assert call_lines(exchanges_from_spans([span]), width=80, full=False) == [
        "Call 1  m v3  of writer  12 in + 5 out  2.00s  stop",
        "     user: 2+2?",
        "           be brief",
        "assistant: 4  [31m",
    ]


def test_a_failed_call_shows_its_error_and_a_swapped_policy_both_versions() -> None:
    failed = made_call(1, ASKED, None, error="the server is gone", **OF)
    swapped = made_call(2, ASKED, ANSWER, at=1, **OF, **{key.POLICY_VERSION_END: 4, key.CACHE: "hit"})
    lines = call_lines(exchanges_from_spans([failed, swapped]), width=80, full=False)
    assert lines[0] == "Call 1  m  500ms  failed: 502"
    assert lines[3] == "    error: the server is gone"
    assert lines[5] == "Call 2  m v3-4  12 in + 5 out  500ms  stop  from the cache"
    assert lines[6] == "           (after 1 message shown above)"


def test_long_messages_are_cut_unless_all_is_asked_for() -> None:
    long = [{"role": "user", "content": "\n".join(f"line {number}" for number in range(30))}]
    exchanges = exchanges_from_spans([made_call(1, long, ANSWER, **OF)])
    short = call_lines(exchanges, width=80, full=False)
    assert "           ... 10 more lines (--full shows them)" in short
    assert len(call_lines(exchanges, width=80, full=True)) == 32


def test_every_answer_of_several_choices_is_shown() -> None:
    span = made_call(1, ASKED, ANSWER, **OF)
    two = '[{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]'
    span = span.model_copy(update={"attributes": {**span.attributes, key.OUTPUT_MESSAGES: two}})
    lines = call_lines(exchanges_from_spans([span]), width=80, full=False)
    assert lines[3:] == [
        "           answer 1 of 2",
        "assistant: a",
        "           answer 2 of 2",
        "assistant: b",
    ]


def test_calls_as_plain_values_have_all_messages_and_numbers() -> None:
    span = made_call(1, ASKED, ANSWER, **OF)
    [call] = calls_as_json(exchanges_from_spans([span]))
    assert (call["input_tokens"], call["output_tokens"], call["policy_version"]) == (12, 5, 3)
    assert call["seconds"] == 0.5
    assert (call["new_messages"], call["answers"], call["error"]) == (ASKED, [ANSWER], None)
