"""agl doctor: which checks there are, and the lines that a finding takes at any width."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Agl

from agl.cli.doctor import lines_of, machine_checks, recipe_checks, store_check
from agl.config import Settings, compose
from agl.doctor import Check, diagnose
from agl.doctor.findings import failure, fine
from agl.errors import ConfigError

ROOT = Path(__file__).parents[3]
MACHINE = [
    *("python", "system", "packages", "torch", "processors"),
    *("memory", "disk", "clock", "ports", "open files"),
]


def settings_of(*overrides: str) -> Settings | ConfigError:
    try:
        return compose("train", overrides)
    except ConfigError as error:
        return error


def place_of(check: Check) -> tuple[object, ...]:
    return check.look.args  # type: ignore[union-attr]


def test_the_machine_is_looked_at_whatever_the_recipe() -> None:
    assert [check.name for check in machine_checks(5.0)] == MACHINE


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["+recipe=ppo_sql"], ["settings", "data", "agent", "tokenizer", "call"]),
        (["+recipe=apo_rooms"], ["settings", "data", "agent", "call"]),
        (["+recipe=ppo_sql", "agent.target=???"], ["settings", "data", "tokenizer", "call"]),
        (["seed=1"], ["settings"]),
        (["+recipe=no_such"], ["settings"]),
    ],
)
def test_what_a_recipe_has_is_looked_at(in_folder: Path, overrides: list[str], names: list[str]) -> None:
    assert [check.name for check in recipe_checks(settings_of(*overrides), 5.0)] == names


@pytest.mark.parametrize(
    ("overrides", "detail"),
    [
        (["+recipe=ppo_sqll"], "there is no recipe called ppo_sqll; did you mean ppo_sql?"),
        (["+recipe=ppo_sql", "algorithm.group_sizee=8"], "did you mean algorithm.group_size?"),
        (["seed=1"], "no value for "),
    ],
)
async def test_settings_that_are_wrong_fail_in_the_words_of_agl_train(
    in_folder: Path, overrides: list[str], detail: str
) -> None:
    first, *_ = await diagnose(recipe_checks(settings_of(*overrides), 5.0)[:1])
    assert (first.status, first.what) == ("fail", "settings")
    assert detail in first.detail
    assert first.fix == "change the setting that the message names; agl train ... --cfg prints all of them"


async def test_the_parts_of_a_recipe_are_named(in_folder: Path) -> None:
    checks = recipe_checks(settings_of("+recipe=apo_rooms"), 30.0)
    found = await diagnose([check for check in checks if check.name != "call"])
    assert [(finding.status, finding.what, finding.detail.partition(",")[0]) for finding in found] == [
        ("ok", "settings", "apo_rooms: APO"),
        ("ok", "data train", "96 tasks"),
        ("ok", "data val", "100 tasks"),
        ("ok", "agent", "booking_agent takes what it is given: llm"),
    ]
    assert list(in_folder.iterdir()) == []


def test_a_finding_is_a_line_with_what_to_do_below() -> None:
    assert lines_of(fine("disk", "63.0 GiB free"), width=80) == ["ok    disk          63.0 GiB free"]
    assert lines_of(failure("disk", "/runs cannot be written", "choose another"), width=80) == [
        "fail  disk          /runs cannot be written",
        "                    > choose another",
    ]


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    lines = lines_of(
        failure("chat template", "only system messages are rendered", "set another file"), width=40
    )
    assert lines == [
        "fail  chat template",
        "      only system messages are rendered",
        "      > set another file",
    ]


def test_long_words_are_broken_below_themselves() -> None:
    lines = lines_of(failure("x", "word " * 30, "fix " * 30), width=80)
    assert all(len(line) <= 80 for line in lines)
    assert all(line.startswith(" " * 20) for line in lines[1:])


def test_what_a_terminal_would_obey_is_taken_out() -> None:
    assert "\x1b" not in "".join(lines_of(fine("data", "\x1b[31mred"), width=80))


def test_no_time_at_all_is_exit_code_two(agl: Agl) -> None:
    code, _, err = agl("doctor", "--timeout", "0")
    assert (code, err) == (2, "agl: --timeout 0: a number of seconds above 0\n")


def test_the_store_that_is_looked_at_is_the_one_that_will_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_STORE_TOKEN", "secret-of-the-store")
    client = settings_of("+recipe=apo_rooms", "store=client", "store.url=http://h:1")
    local = settings_of("+recipe=apo_rooms")
    assert place_of(store_check(None, None)) == (Path("runs"),)
    assert place_of(store_check(None, local)) == (Path("runs"),)
    assert place_of(store_check(None, ConfigError("x"))) == (Path("runs"),)
    assert place_of(store_check(None, client)) == ("http://h:1", "secret-of-the-store")
    assert place_of(store_check("http://h:2", client)) == ("http://h:2", "secret-of-the-store")
