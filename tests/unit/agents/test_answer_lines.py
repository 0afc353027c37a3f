"""The reward in a program's output: the last line that says one."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.agents.answer_lines import AnswerLines


def read(*pieces: bytes) -> AnswerLines:
    lines = AnswerLines()
    for piece in pieces:
        lines.feed(piece)
    lines.end()
    return lines


@pytest.mark.parametrize(
    ("output", "reward", "last"),
    [
        (b"", None, None),
        (b"\n \n", None, None),
        (b'{"reward": 0.5}\n', 0.5, {"reward": 0.5}),
        (b'{"reward": 0.5}', 0.5, {"reward": 0.5}),
        (b'{"reward": 0.5}\n{"reward": {"reward": 1, "a": 2}}\nbye\n', {"reward": 1, "a": 2}, "bye"),
        (b'{"reward": 1}\n"reward" is what I said\n{"reward": \n', 1, '{"reward":'),
        (b'[{"reward": 1}]\n{"answer": 42}\r\n\r\n', None, {"answer": 42}),
        (b'{"nested": {"reward": 1}}\n', None, {"nested": {"reward": 1}}),
        (b'  {"reward": null}  \n', None, {"reward": None}),
        (b'\xff\xfe "reward" \xff\n{"reward": 2, "x": "\xff"}\nw\xff\n', None, "w�"),
    ],
)
def test_the_last_line_with_a_reward_and_the_last_line_at_all(
    output: bytes, reward: object, last: object
) -> None:
    lines = read(output)
    assert (lines.reward, lines.last) == (reward, last)


@given(st.lists(st.integers(0, 60), max_size=8))
def test_how_the_output_is_cut_into_pieces_changes_nothing(cuts: list[int]) -> None:
    output = b'noise\n{"reward": 1}\n{"reward": {"a": 2.5}}\nmore noise\n{"x": 3}'
    at = [0, *sorted(cuts), len(output)]
    lines = read(*(output[begin:end] for begin, end in pairwise(at)))
    assert (lines.reward, lines.last) == ({"a": 2.5}, {"x": 3})


def test_a_line_without_end_takes_no_memory_and_what_follows_counts() -> None:
    lines = AnswerLines()
    piece = b"x" * 65536
    lines.feed(b'{"reward": 1}\n')
    for _ in range(40):
        lines.feed(piece)
    tracemalloc.start()
    for _ in range(400):
        lines.feed(piece)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 100_000
    lines.feed(b' "reward" \n{"reward": 2}\n')
    lines.end()
    assert (lines.reward, lines.last) == (2, {"reward": 2})
