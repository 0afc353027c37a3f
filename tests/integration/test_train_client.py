"""``agl train`` with its store behind HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

from train_processes import SMALL, finished, metrics_of, start_train

from agl.store.server import StoreServer
from agl.store.sqlite import SqliteLightningStore
from agl.types import RolloutQuery, RunQuery, SpanQuery


async def test_a_run_keeps_its_queue_and_record_in_a_store_elsewhere(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    async with (
        SqliteLightningStore(str(tmp_path / "elsewhere.sqlite")) as store,
        StoreServer(store, port=0, token="s3cret-token").serving() as url,
    ):
        settings = ["store=client", f"store.url={url}", "store.token=s3cret-token", "algorithm.iterations=1"]
        process = start_train(run_dir, *SMALL, *settings)
        code, out, err = await asyncio.to_thread(finished, process)
        assert (code, err) == (0, "")
        assert "Held-out reward (95% interval)" in out
        (run,) = (await store.query_runs(RunQuery())).items
        assert (run.run_id, run.status) == ("run", "succeeded")
        rollouts = (await store.query_rollouts(RolloutQuery(run_id="run"))).items
        assert {rollout.status for rollout in rollouts} == {"succeeded"}
        assert metrics_of(run_dir)[1]["rollouts/enqueued"] == 4 * 2
        spans = (await store.query_spans(SpanQuery(run_id="run", name_prefix="chat "))).items
        assert {span.rollout_id for span in spans} == {rollout.rollout_id for rollout in rollouts}
    assert not (run_dir / "store.sqlite").exists()
    for path in (run_dir / "settings.yaml", run_dir / "agl.log"):
        assert "s3cret-token" not in path.read_text()
