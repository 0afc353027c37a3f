"""Data: tasks from files and functions, mistakes as one-line errors, an order that only seed and position decide."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.data import (
    ChosenTasks,
    FileTasks,
    FunctionTasks,
    TaskPosition,
    chosen_tasks,
    iterations_of_epochs,
    task_order,
    tasks_from_json,
    tasks_from_jsonl,
    tasks_of_iteration,
)
from agl.errors import ConfigError
from agl.types import Json, Mode


def error_of(call: Any, *arguments: Any, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    path.write_text('{"q": 1}\n\n"text"\n[3]\n', encoding="utf-8")
    return path


def questions(split: str, limit: int | None = None, *, seed: int = 0) -> list[Any]:
    if split == "nowhere":
        raise ValueError("there is no split\nnowhere")
    if split == "gone":
        raise FileNotFoundError("questions.json is missing")
    return [{"split": split, "seed": seed, "number": n} for n in range(10 if limit is None else limit)]


def unlimited(split: str) -> list[str]:
    return [] if split == "empty" else [f"{split} {n}" for n in range(5)]


def needs_folder(split: str, folder: str) -> list[str]:
    return [split + folder]


def test_a_line_is_a_task_and_empty_lines_are_passed_over(file: Path) -> None:
    assert FileTasks(train=str(file)).load("train") == [{"q": 1}, "text", [3]]


def test_a_json_file_is_a_list_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text('[1, {"q": "é"}]', encoding="utf-8")
    assert FileTasks(train=str(tmp_path / "train.json")).load("train") == [1, {"q": "é"}]


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"q": 1}\r\n{"q": 2}\r\n')
    assert tasks_from_jsonl(tmp_path / "a.jsonl") == [{"q": 1}, {"q": 2}]


def test_limits_take_the_first_tasks_of_each_part(file: Path) -> None:
    data = FileTasks(train=str(file), val=str(file), num_train=2, num_val=1)
    assert data.load("train") == [{"q": 1}, "text"]
    assert data.load("val") == [{"q": 1}]
    assert data.load("test") == []


def test_a_broken_line_is_named_by_file_and_line(file: Path) -> None:
    file.write_text('{"q": 1}\n{"q": \n')
    assert error_of(tasks_from_jsonl, file) == f"{file}:2: not a JSON value: Expecting value at column 7"


def test_a_number_that_json_does_not_have_is_refused(file: Path) -> None:
    file.write_text('{"q": NaN}\n')
    assert error_of(tasks_from_jsonl, file) == f"{file}:1: not a JSON value: NaN is no JSON value"


def test_bytes_that_are_no_text_are_named_by_line(file: Path) -> None:
    file.write_bytes(b"1\n\xff\n")
    assert error_of(tasks_from_jsonl, file) == f"{file}:2: not a JSON value: not UTF-8"


def test_a_broken_json_file_is_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[1,\n2,\n]")
    assert error_of(tasks_from_json, path).startswith(f"{path}:3: not JSON: ")
    path.write_text('{"q": 1}')
    assert error_of(tasks_from_json, path) == f"{path} holds one dict; it must be a list of tasks"


def test_data_without_tasks_is_an_error(file: Path) -> None:
    file.write_text("\n")
    assert error_of(FileTasks(train=str(file)).load, "train") == f"{file} has no tasks"
    assert error_of(FunctionTasks(function=unlimited, train_split="empty").load, "train") == (
        "unlimited(split='empty') has no tasks"
    )


def test_a_file_that_is_not_there_is_an_error_before_anything_starts(file: Path) -> None:
    near = file.with_name("trian.jsonl")
    assert error_of(FileTasks, train=str(near)) == (
        f"train is {near}, and there is no such file; did you mean {file}?"
    )
    assert "(nor a folder" in error_of(FileTasks, train=str(file), val=str(file.parent / "no" / "val.jsonl"))


def test_another_kind_of_file_is_an_error(tmp_path: Path) -> None:
    assert (
        error_of(FileTasks, train="tasks.csv")
        == "train is tasks.csv; tasks come from a .jsonl or a .json file"
    )


def test_a_limit_below_one_is_an_error(file: Path) -> None:
    assert error_of(FileTasks, train=str(file), num_val=0) == (
        "num_val is 0; it must be at least 1, or null for all tasks"
    )


def test_a_function_is_called_with_split_limit_and_arguments() -> None:
    data = FunctionTasks(function=questions, arguments={"seed": 7}, val_split="dev", num_val=2)
    assert len(data.load("train")) == 10
    assert data.load("val") == [{"split": "dev", "seed": 7, "number": n} for n in range(2)]
    assert data.load("test") == []


def test_a_function_without_a_limit_is_cut_off() -> None:
    assert FunctionTasks(function=unlimited, num_train=2).load("train") == ["train 0", "train 1"]


def test_an_argument_that_the_function_does_not_take_names_the_nearest() -> None:
    assert error_of(FunctionTasks, function=questions, arguments={"sede": 1}) == (
        "arguments.sede is not an argument of questions; did you mean arguments.seed?"
    )


def test_an_argument_that_the_function_needs_is_named() -> None:
    assert (
        error_of(FunctionTasks, function=needs_folder)
        == "arguments.folder is missing: needs_folder requires it"
    )


def test_split_and_limit_are_not_arguments() -> None:
    assert error_of(FunctionTasks, function=questions, arguments={"split": "x"}).startswith(
        "arguments.split: agl gives split itself"
    )


def test_a_function_without_a_split_is_refused() -> None:
    assert error_of(FunctionTasks, function=len).startswith("len takes no argument called split")


def test_what_a_function_says_of_its_settings_is_one_line() -> None:
    assert error_of(FunctionTasks(function=questions, train_split="nowhere").load, "train") == (
        "questions(split='nowhere'): there is no split nowhere"
    )
    assert error_of(FunctionTasks(function=questions, test_split="gone").load, "test") == (
        "questions(split='gone'): questions.json is missing"
    )


def test_the_order_never_changes() -> None:
    """Worked out by ``printf 0/0/$i | sha256sum`` for each i, sorted by the hash."""
    assert task_order(5, seed=0, epoch=0) == [4, 2, 0, 1, 3]
    assert task_order(5, seed=0, epoch=1) != task_order(5, seed=0, epoch=0)
    assert task_order(5, seed=1, epoch=0) != task_order(5, seed=0, epoch=0)


@given(num_tasks=st.integers(1, 60), per_iteration=st.integers(1, 20), seed=st.integers(0, 3))
def test_every_task_is_used_once_a_pass(num_tasks: int, per_iteration: int, seed: int) -> None:
    used: Counter[TaskPosition] = Counter()
    for iteration in range(1, iterations_of_epochs(num_tasks, per_iteration, epochs=2) + 1):
        positions = tasks_of_iteration(num_tasks, per_iteration, iteration, seed=seed)
        assert len(positions) == per_iteration
        used.update(positions)
    for epoch in (0, 1):
        assert sorted(p.index for p in used if p.epoch == epoch) == list(range(num_tasks))
    assert set(used.values()) == {1}


def test_an_iteration_needs_only_its_number() -> None:
    first = [p for i in (1, 2, 3) for p in tasks_of_iteration(7, 3, i, seed=5)]
    assert [p.index for p in first] == [*task_order(7, seed=5, epoch=0), *task_order(7, seed=5, epoch=1)[:2]]
    assert tasks_of_iteration(7, 3, 3, seed=5) == first[6:]


def test_an_iteration_may_be_larger_than_the_data() -> None:
    assert [p.epoch for p in tasks_of_iteration(2, 5, 1, seed=0)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(("num_tasks", "per_iteration", "iteration"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_there_is_no_such_iteration(num_tasks: int, per_iteration: int, iteration: int) -> None:
    with pytest.raises(ValueError, match="no such iteration"):
        tasks_of_iteration(num_tasks, per_iteration, iteration, seed=0)


def test_epochs_are_rounded_up_to_iterations() -> None:
    assert iterations_of_epochs(10, 4, epochs=1) == 3
    assert iterations_of_epochs(8, 4, epochs=2) == 4


class Parts:
    """Data whose tasks say which part they are of."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self, mode: Mode) -> list[Json]:
        return [f"{self.name} {mode}"]


@pytest.mark.parametrize(
    ("sources", "train", "val"),
    [
        ((Parts("a"),), ["a train"], ["a val"]),
        ((Parts("a"), [1, 2]), [1, 2], ["a val"]),
        ((Parts("a"), Parts("b")), ["b train"], ["b val"]),
        ((Parts("a"), Parts("b"), [3]), ["b train"], [3]),
        ((None, [1]), [1], []),
        ((None, None, (3,)), [], [3]),
    ],
)
def test_what_is_given_for_a_part_comes_before_what_the_data_has(
    sources: tuple[Any, ...], train: list[Json], val: list[Json]
) -> None:
    assert chosen_tasks(*sources) == ChosenTasks(train=train, val=val)


@pytest.mark.parametrize(
    ("sources", "message"), [((None,), "there are no tasks"), ((None, "t.jsonl"), "train: tasks are a list")]
)
def test_a_run_without_tasks_and_a_file_name_as_tasks_are_refused(
    sources: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen_tasks(*sources)
