"""``agl ls``, ``show``, ``trace`` and ``logs`` against a store that is served, and a log that grows."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks
from forked_agl import run_agl
from listed_records import listed_store, made_call, made_span

from agl.store.server import StoreServer
from agl.types import ErrorInfo, RolloutRequest
from agl.types import attributes as key

TOKEN = "a-token-that-nobody-guesses"

WRITER = """
import sys
from pathlib import Path

from agl.cli.run_folder import locked

folder = Path(sys.argv[1])
with locked(folder), (folder / "agl.log").open("a") as log:
    print("at work", flush=True)
    for line in sys.stdin:
        log.write(line)
        log.flush()
"""


async def test_records_of_a_served_store_are_listed_shown_traced_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGL_STORE_TOKEN", TOKEN)
    store, _ = listed_store()
    of = {"rollout_id": "demo-0", "attempt_id": "at-1"}
    async with store, StoreServer(store, port=0, token=TOKEN).serving() as url:

        async def agl(*arguments: str) -> tuple[int | None, str, str]:
            done = await asyncio.to_thread(run_agl, [*arguments, "--store-url", url], tmp_path)
            return done.returncode, done.stdout, done.stderr

        await store.add_run(name="demo", run_id="demo", command="train")
        await store.add_metrics("demo", 1, {"train/reward": 0.5})
        await store.add_resources({"prompt": "x"}, resources_id="rs-demo", run_id="demo")
        await store.start_rollout(
            RolloutRequest(task="2+2?", rollout_id="demo-0", run_id="demo"), worker_id="w"
        )
        asked = [{"role": "user", "content": "2+2?"}]
        output = made_span(2, key.OUTPUT_SPAN, **of)
        written = {key.OUTPUT_STREAM: "stdout", key.OUTPUT_TEXT: "adding\n", key.OUTPUT_BYTES: 7}
        await store.add_many_spans(
            [
                made_call(1, asked, {"role": "assistant", "content": "5"}, **of),
                output.model_copy(update={"attributes": written}),
            ]
        )
        await store.update_attempt("demo-0", "at-1", status="failed", error=ErrorInfo(cause="WrongError"))

        for arguments, shown in (
            (["ls"], "demo"),
            (["ls", "rollouts", "--failed", "WrongError"], "demo-0"),
            (["ls", "workers"], "No workers"),
            (["ls", "resources", "--run", "demo"], "rs-demo"),
            (["show", "demo"], "1 = 0 succeeded + 1 failed + 0 cancelled"),
            (["show", "demo-0"], "assistant: 5"),
            (["show", "at-1"], f"agl trace demo-0 --store-url {url}"),
            (["show", "rs-demo"], "Version     1 (the latest)"),
            (["trace", "demo-0"], "chat m"),
            (["logs", "demo-0", "--follow"], "adding"),
        ):
            code, out, err = await agl(*arguments)
            assert (code, err) == (0, ""), arguments
            assert shown in out, arguments
        code, out, err = await agl("show", "demo-1")
        assert (code, out) == (2, "")
        assert "did you mean demo-0" in err
        assert TOKEN not in out + err
    code, out, err = await agl("show", "demo-0")
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_the_log_of_a_run_is_followed_until_its_process_ends(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text("name: demo\n")
    (folder / "agl.log").write_text("first\n")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stdout.readline() == "at work\n"
        with subprocess.Popen(
            [sys.executable, "-m", "agl", "logs", "--follow"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "first\n"
            for line in ("second\n", "third\n"):
                run.stdin.write(line)
                run.stdin.flush()
                assert reader.stdout.readline() == line
            run.stdin.write("cut")
            run.stdin.close()
            assert reader.stdout.read() == "cut\n"
            assert reader.wait(timeout=60) == 0


def test_ctrl_c_ends_following_with_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text("name: demo\n")
    (folder / "agl.log").write_text("first\n")  # without a lock: nobody can tell whether it has ended
    with subprocess.Popen(
        [sys.executable, "-m", "agl", "logs", "-f"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "first\n"
        reader.send_signal(signal.SIGINT)
        out, err = reader.communicate(timeout=60)
    assert (reader.returncode, out, err) == (130, "", "agl: interrupted\n")


def test_json_is_all_that_is_on_standard_output(tmp_path: Path) -> None:
    done = run_agl(["ls", "--json"], tmp_path)
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, [], "")


async def test_every_command_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "demo"
    folder.mkdir(parents=True)
    for name in ("settings.yaml", ".lock", "agl.log"):
        (folder / name).write_text("name: demo\n")
    store, _ = listed_store(folder / "store.sqlite")
    async with store:
        await store.add_run(name="demo", run_id="demo", command="train")
        await store.add_resources({}, resources_id="demo-val-reward-v3-b302381f")
        await store.start_rollout(RolloutRequest(task=1, rollout_id="demo-e3-reward-7-0", run_id="demo"))
        for step in (1, 2):
            await store.add_metrics("demo", step, {"update/kl": 0.1})
    lines = [line for block in blocks(ROOT / "docs" / "inspect.md", "sh") for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if "--store-url" not in line]
    assert len(commands) > 12
    for command in commands:
        done = await asyncio.to_thread(run_agl, command, tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout, command
