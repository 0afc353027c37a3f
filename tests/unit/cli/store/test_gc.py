"""agl store gc on a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import Agl

from agl.cli.store.gc import age_seconds, counted, megabytes
from agl.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("12h", 43200), ("1.5d", 129600), ("2w", 1209600)]
)
def test_an_age_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert age_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "30 days"])
def test_anything_else_is_no_age(text: str) -> None:
    with pytest.raises(ConfigError, match="--older-than"):
        age_seconds(text)


def test_what_went_is_counted_in_words() -> None:
    assert counted({"rollouts": 2, "spans": 0, "metrics": 3}) == "2 rollouts, 3 metrics"
    assert counted({"rollouts": 0}) == "nothing but its name"
    assert megabytes(1_250_000) == "1.2 MB"


def test_a_run_goes_whole_and_the_file_shrinks(agl: Agl, two_runs: Path) -> None:
    code, out, err = agl("store", "gc", "--run", "done")
    assert (code, err) == (0, "")
    assert re.fullmatch(
        r"run done: deleted (?=.*2 rollouts)(?=.*2 attempts)(?=.*4 spans).*", out.splitlines()[0]
    )
    before, now = map(float, re.findall(r"([\d.]+) MB", out.splitlines()[1]))
    assert before > 0.5
    assert now < before / 2


def test_old_spans_go_and_their_rollouts_stay(agl: Agl, two_runs: Path) -> None:
    code, out, _ = agl("store", "gc", "--older-than", "0s")
    assert code == 0
    assert re.match(r"spans of rollouts finished before \d{4}-\d\d-\d\d [\d:]{8}: deleted 4\n", out)
    assert "would delete 2 rollouts, 2 attempts\n" in agl("store", "gc", "--run", "done", "--dry-run")[1]


def test_spans_that_are_not_old_yet_stay(agl: Agl, two_runs: Path) -> None:
    assert ": deleted 0\n" in agl("store", "gc", "--older-than", "1h")[1]
    assert "of run done finished before" in agl("store", "gc", "--older-than", "0s", "--run", "done")[1]


@pytest.mark.parametrize("how", [[], ["--dry-run"]])
def test_a_run_that_is_running_is_refused(agl: Agl, two_runs: Path, how: list[str]) -> None:
    code, _, err = agl("store", "gc", "--run", "open", *how)
    assert code == 1
    assert err.startswith("agl: run open has ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("how", [[], ["--dry-run"]])
def test_a_run_that_is_not_there_is_refused(agl: Agl, two_runs: Path, how: list[str]) -> None:
    assert agl("store", "gc", "--run", "dun", *how) == (1, "", "agl: no run has the id 'dun'\n")


def test_a_dry_run_says_what_would_go_and_changes_nothing(agl: Agl, two_runs: Path) -> None:
    for _ in range(2):
        code, out, _ = agl("store", "gc", "--run", "done", "--dry-run")
        assert (code, out) == (0, "run done: would delete 2 rollouts, 2 attempts, 4 spans\n")
        assert (
            "would delete those of 2 rollouts\n" in agl("store", "gc", "--older-than", "0s", "--dry-run")[1]
        )
        assert (
            "would delete those of 0 rollouts\n" in agl("store", "gc", "--older-than", "1h", "--dry-run")[1]
        )
