"""``agl proxy`` as a process of its own between an agent, a store and an upstream that are processes too."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from proxy_processes import agl_proxy, scripted_upstream, served_proxy
from store_processes import StoreProcess, served

from agl.types import ProxyLLM

TOKEN = "a-token-of-some-length"
AGENT = """
from openai import OpenAI

with OpenAI() as client:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    print(client.chat.completions.create(**asked).choices[0].message.content)
    chunks = client.chat.completions.create(**asked, stream=True)
    print("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
"""
WAITING_AGENT = AGENT.replace("hello", "wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A store, an upstream and a folder."""

    store: StoreProcess
    upstream: StoreProcess
    folder: Path

    @property
    def arguments(self) -> list[str]:
        """What a proxy between them is started with."""
        endpoint = f"proxy.endpoints={{gpu: {{model: m, urls: ['{self.upstream.url}']}}}}"
        return ["--store-url", self.store.url, endpoint]

    def attempt(self, **fields: object) -> dict[str, str]:
        """Begin an attempt; its ids."""
        httpx.post(f"{self.store.url}/v1/rollouts", json={"task": 1, **fields}).raise_for_status()
        held = httpx.post(f"{self.store.url}/v1/rollouts/dequeue", json={"worker_id": "w"}).json()
        return {name: held["attempt"][name] for name in ("rollout_id", "attempt_id")}

    def spans(self, ids: dict[str, str]) -> list[dict]:
        """What is recorded of an attempt."""
        return httpx.get(f"{self.store.url}/v1/spans", params=ids).json()["items"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with served(folder=tmp_path) as store, scripted_upstream() as upstream:
        yield World(store=store, upstream=upstream, folder=tmp_path)


def start_agent(text: str, url: str, ids: dict[str, str], key: str = "none") -> subprocess.Popen[str]:
    llm = ProxyLLM(base_url=url, model="m", api_key=key).for_attempt(**ids)
    environment = {**os.environ, "OPENAI_BASE_URL": llm.base_url, "OPENAI_API_KEY": llm.api_key}
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_says_where_it_serves_what_and_whom(world: World) -> None:
    with served_proxy(*world.arguments, folder=world.folder) as proxy:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", proxy.url)
        assert list(proxy.lines) == [
            f"agl proxy serves {proxy.url}",
            f"  records  {world.store.url}",
            world.store.lines[2],
            "  token    none: only this machine can connect",
            "  models   m",
            f"  accounts {proxy.url}/accounts",
            f"  agents   {proxy.url}/rollout/ROLLOUT_ID/attempt/ATTEMPT_ID/v1",
        ]
        assert httpx.get(f"{proxy.url}/health").json() == {"status": "ok"}
        assert httpx.get(f"{proxy.url}/accounts").json()["total"]["calls"] == 0
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.ended() == (0, "", "")


def test_an_agent_process_is_served_and_its_calls_are_recorded_in_the_store(world: World) -> None:
    ids = world.attempt(run_id="demo")
    with served_proxy(*world.arguments, folder=world.folder, environment={"AGL_PROXY_TOKEN": TOKEN}) as proxy:
        out, err = start_agent(AGENT, proxy.url, ids, TOKEN).communicate(timeout=60)
        assert (out, err) == ("hello 1\nhello 2\n", "")
        _, err = start_agent(AGENT, proxy.url, ids, "another").communicate(timeout=60)
        assert "key" in err
        admin = {"authorization": f"Bearer {TOKEN}"}
        accounts = httpx.get(f"{proxy.url}/accounts", params={"run_id": "demo"}, headers=admin).json()
        assert proxy.lines[3] == "  token    set (...ngth)"
        assert TOKEN not in "".join(proxy.lines)
    spans = world.spans(ids)
    said = [json.loads(span["attributes"]["gen_ai.output.messages"])[0]["content"] for span in spans]
    assert said == ["hello 1", "hello 2"]
    assert [span["attributes"].get("gen_ai.request.stream") for span in spans] == [None, True]
    assert (accounts["calls"], accounts["input_tokens"]) == (2, 6)
    assert accounts["mean_first_chunk_seconds"] > 0


def test_a_budget_outlives_the_process(world: World) -> None:
    ids = world.attempt()
    arguments = [*world.arguments, "proxy.budgets.max_calls_per_rollout=3"]
    with served_proxy(*arguments, folder=world.folder) as proxy:
        assert start_agent(AGENT, proxy.url, ids).communicate(timeout=60) == ("hello 1\nhello 2\n", "")
        proxy.process.kill()
    with served_proxy(*arguments, folder=world.folder) as proxy:
        out, err = start_agent(AGENT, proxy.url, ids).communicate(timeout=60)
    assert out == "hello 3\n"
    assert f"budget max_calls of rollout {ids['rollout_id']} is used up: the limit is 3" in err
    assert [span["status"]["code"] for span in world.spans(ids)] == ["ok", "ok", "ok", "error"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_in_time_and_calls_under_way_are_recorded_as_cancelled(
    world: World, number: signal.Signals, code: int
) -> None:
    ids = world.attempt()
    arguments = [*world.arguments, "proxy.grace_seconds=0.2"]
    with served_proxy(*arguments, folder=world.folder) as proxy:
        agent = start_agent(WAITING_AGENT, proxy.url, ids)
        assert world.upstream.process.stdout is not None
        assert world.upstream.process.stdout.readline() == "wait\n"
        proxy.process.send_signal(number)
        asked = time.monotonic()
        ended, _, _ = proxy.ended(timeout=10)
        assert time.monotonic() - asked < 5
        agent.kill()
        agent.communicate()
    assert ended == code
    (span,) = world.spans(ids)
    assert (span["status"]["code"], span["attributes"]["error.type"]) == ("error", "cancelled")


def test_endpoints_come_from_the_store_while_it_runs(world: World) -> None:
    ids = world.attempt()
    with served_proxy("--store-url", world.store.url, folder=world.folder) as proxy:
        assert proxy.lines[4].startswith("  models   none yet: ")
        endpoint = {"kind": "model_endpoint", "model": "m", "urls": [world.upstream.url]}
        resources = {"resources": {"gpu": endpoint}}
        httpx.post(f"{world.store.url}/v1/resources", json=resources).raise_for_status()
        models = f"{proxy.url}/rollout/{ids['rollout_id']}/attempt/{ids['attempt_id']}/v1/models"
        while not httpx.get(models).json()["data"]:
            pass  # the test's own time limit ends it
        assert start_agent(AGENT, proxy.url, ids).communicate(timeout=60) == ("hello 1\nhello 2\n", "")


@pytest.mark.parametrize(
    ("code", "reason", "arguments"),
    [
        (2, "--store-url URL of a store that `agl store` serves", []),
        (2, "set proxy.token", ["--store-url", "http://127.0.0.1:1", "--host", "0.0.0.0"]),
        (2, "did you mean proxy.cache", ["--store-url", "http://127.0.0.1:1", "proxy.cach=all"]),
        (2, "did you mean proxy.endpoints", ["--store-url", "http://127.0.0.1:1", "proxy.endpoint={a: {}}"]),
        (2, "proxy.cache", ["--store-url", "http://127.0.0.1:1", "proxy.cache=always"]),
        (2, "urls", ["--store-url", "STORE", "proxy.endpoints={gpu: {model: m}}"]),
        (1, "no store answers at", ["--store-url", "http://127.0.0.1:1", "store.retry_seconds=0"]),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    world: World, code: int, reason: str, arguments: list[str]
) -> None:
    given = [world.store.url if argument == "STORE" else argument for argument in arguments]
    ended, out, err = agl_proxy(*given, folder=world.folder)
    assert (ended, out) == (code, ""), err
    (line,) = [line for line in err.splitlines() if line.startswith("agl: ")]
    assert re.search(reason, line), err
    assert "Traceback" not in err


def test_an_address_that_is_taken_is_refused(world: World) -> None:
    with served_proxy(*world.arguments, folder=world.folder) as proxy:
        port = proxy.url.rpartition(":")[2]
        ended, out, err = agl_proxy(*world.arguments, "--port", port, folder=world.folder)
    assert (ended, out) == (2, "")
    assert f"the proxy cannot listen on 127.0.0.1:{port}" in err
    assert err.count("\n") == 1
