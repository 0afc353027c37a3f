"""agl export."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from command_line import Agl
from recorded_runs import call, rollout, span, store_file

from agl.cli.export import lines_of, size_words

ASKED = [{"role": "user", "content": "2+2?"}]
ANSWER = {"role": "assistant", "content": "4"}


@pytest.fixture
async def run(in_folder: Path) -> Path:
    """A run with three rollouts and their spans."""
    folder = await store_file(
        Path("runs/one"),
        rollouts=[rollout(1), rollout(2, reward=0.0), rollout(3, reward=None, status="failed")],
        spans=[call(1, 1, ASKED, ANSWER, ids=([1], [2])), span(2, 2), span(3, 3)],
    )
    (folder / "settings.yaml").write_text("name: demo\n")
    return folder


def policy_of(folder: Path, begun: float) -> None:
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "config.json").write_text("{}")
    (folder / "settings.yaml").write_text("name: demo\n")
    os.utime(folder / "settings.yaml", (begun, begun))


@pytest.mark.parametrize(
    ("what", "file", "counts"),
    [
        ("rollouts", "rollouts.jsonl", {"rollouts": 3}),
        ("spans", "spans.jsonl", {"spans": 3, "rollouts": 3, "runs": 1}),
        ("samples", "samples.jsonl", {"samples": 1, "rollouts": 3}),
        ("sft", "sft.jsonl", {"conversations": 1, "rollouts": 1}),
    ],
)
def test_the_newest_run_is_exported_and_json_says_what_was_written(
    agl: Agl, run: Path, what: str, file: str, counts: dict[str, int]
) -> None:
    code, out, err = agl("export", f"what={what}", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["path"], report["run_dir"], report["counts"]) == (file, "runs/one", counts)
    assert report["bytes"] == Path(file).stat().st_size


def test_people_read_what_was_written_and_what_was_left_out(agl: Agl, run: Path) -> None:
    code, out, err = agl("export", "what=sft", "--out", "deep/chats.jsonl", "--run-dir", "one")
    size = Path("deep/chats.jsonl").stat().st_size
    assert (code, err) == (0, "")
    assert out == (
        f"deep/chats.jsonl: 1 conversation, 1 rollout, {size} bytes\n"
        "  of runs/one\n"
        "  left out: below_reward 1\n"
    )


def test_a_stores_file_of_any_name_is_read(agl: Agl, run: Path) -> None:
    (run / "store.sqlite").rename("copy.sqlite")
    code, out, _ = agl("export", "what=rollouts", "--run-dir", "copy.sqlite")
    assert code == 0
    assert out.startswith("rollouts.jsonl: 3 rollouts")
    assert out.count("\n") == 1


@pytest.mark.parametrize("width", [80, 140])
def test_the_report_fits_the_terminal(width: int) -> None:
    report = {
        "path": "a/b.jsonl",
        "bytes": 10,
        "run_dir": "runs/x",
        "notes": ["note " * 40],
        "counts": {"spans": 1_234_567},
        "left_out": {f"cause_{number}": number for number in range(20)},
    }
    lines = lines_of(report, width=width)
    assert lines[0] == "a/b.jsonl: 1,234,567 spans, 10 bytes"
    assert max(map(len, lines)) <= width


def test_a_policy_is_that_of_the_newest_run_that_has_one(agl: Agl, run: Path) -> None:
    policy_of(Path("runs/first"), 1.0)
    policy_of(Path("runs/second"), 2.0)
    code, out, _ = agl("export", "what=policy")
    assert code == 0
    assert out.startswith("second-policy: 2 files")
    assert Path("second-policy/config.json").is_file()


def test_cfg_shows_the_settings_and_writes_nothing(agl: Agl, run: Path) -> None:
    code, out, _ = agl("export", "what=rollouts", "status=[failed, cancelled]", "limit=3", "--cfg")
    assert code == 0
    assert "status:\n- failed\n- cancelled\n" in out
    assert not Path("rollouts.jsonl").exists()


def test_force_replaces_what_is_there(agl: Agl, run: Path) -> None:
    Path("f").write_text("old")
    assert agl("export", "what=rollouts", "status=failed", "--out", "f", "--force")[0] == 0
    assert Path("f").read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "say what: agl export what=KIND, one of policy, prompts, rollouts, spans, samples, sft"),
        (
            ["what=rolouts"],
            2,
            "spans, samples, sft; did you mean rollouts?",
        ),
        (["what=rollouts", "statu=failed"], 2, "statu is not a setting; did you mean status?"),
        (["what=rollouts", "status=done"], 2, "status=done must be one of pending"),
        (["what=rollouts", "format=csv"], 2, "format is"),
        (["what=rollouts", "limit=0"], 2, "limit=0 must be at least 1"),
        (["what=rollouts", "--run-dir", "nobody"], 2, "there is no run nobody"),
        (["what=rollouts", "--run-dir", "one", "--store-url", "http://127.0.0.1:1"], 2, "two stores"),
        (["what=rollouts", "--out", "there"], 2, "there is there already: give another --out, or --force"),
        (["what=rollouts", "--out", "there/below"], 2, "there/below cannot be made"),
        (["what=rollouts", "min_reward=5"], 1, "has no rollout with min_reward=5.0; see agl ls rollouts"),
        (["what=samples", "agents=[nobody]"], 1, "of 3 rollouts none gives a sample (no recorded calls)"),
        (["what=sft", "mode=test"], 1, "no succeeded test rollout with min_reward=1"),
        (["what=prompts"], 1, "has no resources with prompts"),
        (["what=prompts", "resources_id=x"], 2, "resources_id=x"),
        (["what=policy"], 2, "runs/one has no policy: neither policy/ nor a checkpoint"),
        (["what=policy", "lora=adapter"], 2, "lora=adapter: runs/one has no checkpoint"),
        (["what=policy", "gguf=convert.py"], 2, "gguf=convert.py: there is no such file"),
        (["what=policy", "--store-url", "http://127.0.0.1:1"], 2, "what=policy needs the run's folder"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do_and_leaves_nothing(
    agl: Agl, run: Path, arguments: list[str], code: int, message: str
) -> None:
    Path("there").write_text("old")
    ended, out, err = agl("export", *arguments)
    assert (ended, out, err.count("\n")) == (code, "", 1), err
    assert message in err
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "there"]
    assert Path("there").read_text() == "old"


def test_parquet_without_its_library_says_how_to_install_it(
    agl: Agl, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = agl("export", "what=spans", "format=parquet")
    assert code == 2
    assert 'pip install "agl[parquet]"' in err


def test_a_folder_without_any_run_says_how_to_name_one(agl: Agl, in_folder: Path) -> None:
    code, _, err = agl("export", "what=policy")
    assert code == 2
    assert "name a run with --run-dir, or a store with --store-url" in err


@pytest.mark.parametrize(
    ("num_bytes", "words"), [(1, "1 byte"), (999, "999 bytes"), (12_345, "12.3 kB"), (4 * 10**9, "4 GB")]
)
def test_sizes_have_a_unit_that_fits(num_bytes: int, words: str) -> None:
    assert size_words(num_bytes) == words
