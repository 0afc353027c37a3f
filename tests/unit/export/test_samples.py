"""what=samples: the sequences of exact token ids."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from recorded_runs import call, rollout, store_file

from agl.errors import AglError, ConfigError
from agl.export.origin import Origin
from agl.export.samples import COLUMNS, SampleExport
from agl.store.opening import store_to_read

ASKED = [{"role": "user", "content": "2+2?"}]
ANSWER = {"role": "assistant", "content": "4"}
ROLLOUTS = [rollout(1), rollout(2, reward=0.0), rollout(3, metadata={"replay_of": "ro-1"})]
SPANS = [
    call(1, 1, ASKED, ANSWER, ids=([1, 2], [3])),
    call(1, 2, ASKED, ANSWER, ids=([1, 2, 3, 4], [5, 6])),  # continues the first
    call(2, 3, ASKED, ANSWER),
    call(3, 4, ASKED, ANSWER, ids=([1, 2], [3])),
]


async def origin_of(folder: Path) -> Origin:
    run = await store_file(folder / "run", rollouts=ROLLOUTS, spans=SPANS)
    return Origin(store=lambda: store_to_read(str(run)))


async def test_calls_that_continue_each_other_are_one_line_with_its_reward(tmp_path: Path) -> None:
    origin = await origin_of(tmp_path)
    done = await SampleExport().write(origin, tmp_path / "f")
    (line,) = [json.loads(line) for line in (tmp_path / "f").read_bytes().splitlines()]
    assert list(line) == list(COLUMNS)
    assert line["token_ids"] == [1, 2, 3, 4, 5, 6]
    assert line["loss_mask"] == [0, 0, 1, 0, 1, 1]
    assert line["logprobs"] == [0.0, 0.0, -0.5, 0.0, -0.5, -0.5]
    assert (line["rollout_id"], line["task"], line["reward"]) == ("ro-1", {"question": "q1"}, 1.0)
    assert done.counts == {"samples": 1, "rollouts": 3}
    assert dict(done.left_out) == {"no_token_ids": 1, "replay": 1}


async def test_a_table_has_the_same_rows(tmp_path: Path) -> None:
    origin = await origin_of(tmp_path)
    await SampleExport(format="parquet", merge=False, max_tokens=3).write(origin, tmp_path / "f")
    (row,) = pyarrow.parquet.read_table(tmp_path / "f").to_pylist()
    assert (row["token_ids"], row["call_rewards"], row["truncated"]) == ([1, 2, 3], [None], False)


async def test_rollouts_without_exact_ids_say_what_takes_them(tmp_path: Path) -> None:
    origin = await origin_of(tmp_path)
    with pytest.raises(
        AglError, match=r"of 1 rollouts none gives a sample \(no_token_ids 1\); what=sft takes"
    ):
        await SampleExport(min_reward=0.0, agents=None, status="succeeded", run_id="r1", limit=1).write(
            Origin(store=(await _without_ids(tmp_path)).store), tmp_path / "f"
        )
    with pytest.raises(AglError, match="has no rollout with mode=test"):
        await SampleExport(mode="test").write(origin, tmp_path / "f")


async def _without_ids(folder: Path) -> Origin:
    run = await store_file(folder / "other", rollouts=ROLLOUTS[1:], spans=SPANS[2:])
    return Origin(store=lambda: store_to_read(str(run)))


def test_settings_that_the_adapter_refuses_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        SampleExport(agents=("(",))
