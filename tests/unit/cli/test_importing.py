"""agl import."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from command_line import Agl
from recorded_runs import RUN, rollout, span, store_file

from agl.export.lines import line_of

ARCHIVE = b"".join(map(line_of, [RUN, rollout(1), span(1, 1), span(1, 2)]))


@pytest.fixture
def file(in_folder: Path) -> Path:
    Path("spans.jsonl").write_bytes(ARCHIVE)
    return Path("spans.jsonl")


def spans_of(agl: Agl, folder: str) -> str:
    agl("export", "what=spans", "--run-dir", folder, "--out", "again", "--force")
    return Path("again").read_text()


def test_a_new_folder_under_runs_has_all_of_it(agl: Agl, file: Path) -> None:
    code, out, err = agl("import", "spans.jsonl")
    assert (code, err) == (0, "")
    (folder,) = Path("runs").iterdir()
    assert folder.name.endswith("-import")
    assert out == (
        f"{folder}: 1 run, 1 rollout, 1 attempt, 2 spans\n  see them: agl ls rollouts --run-dir {folder}\n"
    )
    assert spans_of(agl, str(folder)).encode() == ARCHIVE


def test_a_run_takes_in_what_it_does_not_know_yet(agl: Agl, file: Path) -> None:
    first = b"".join(map(line_of, [RUN, rollout(1), span(1, 1)]))
    Path("first.jsonl").write_bytes(first)
    assert agl("import", "first.jsonl", "--run-dir", "copy")[0] == 0
    code, out, _ = agl("import", "spans.jsonl", "--run-dir", "copy", "--json")
    assert code == 0
    assert json.loads(out) == {
        "store": "copy",
        "is_new": False,
        "new": {"runs": 0, "rollouts": 0, "attempts": 0, "spans": 1},
        "read": {"runs": 1, "rollouts": 1, "spans": 2},
        "left_out": {},
    }
    assert agl("import", "spans.jsonl", "--run-dir", "copy")[1] == (
        "copy: nothing new\n  known before, left as they are: 1 run, 1 rollout, 2 spans\n"
    )
    assert spans_of(agl, "copy").encode() == ARCHIVE


def test_a_name_under_runs_is_that_run(agl: Agl, file: Path) -> None:
    asyncio.run(store_file(Path("runs/one"), rollouts=[], runs=[]))
    assert agl("import", "spans.jsonl", "--run-dir", "one")[1].startswith("runs/one: 1 run")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.jsonl"], 2, "there is no file nowhere.jsonl to import"),
        (["broken.jsonl"], 2, "broken.jsonl:5: not JSON"),
        (
            ["lonely.jsonl"],
            1,
            "lonely.jsonl:1: no attempt has the id 'at-1': import the file of its rollouts",
        ),
        (["empty.jsonl"], 1, "nothing to import: empty.jsonl has no record"),
        (["spans.jsonl", "--run-dir", "full"], 2, "full is a folder without records"),
        (["spans.jsonl", "--run-dir", "x", "--store-url", "http://127.0.0.1:1"], 2, "two stores"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do_and_leaves_nothing(
    agl: Agl, file: Path, arguments: list[str], code: int, message: str
) -> None:
    Path("broken.jsonl").write_bytes(ARCHIVE + b"{")
    Path("lonely.jsonl").write_bytes(line_of(span(1, 1)))
    Path("empty.jsonl").touch()
    Path("full").mkdir()
    Path("full/file").touch()
    before = sorted(Path().rglob("*"))
    ended, out, err = agl("import", *arguments)
    assert (ended, out, err.count("\n")) == (code, "", 1), err
    assert message in err
    assert [path for path in sorted(Path().rglob("*")) if path != Path("runs")] == before
