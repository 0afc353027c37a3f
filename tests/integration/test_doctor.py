"""agl doctor against what is really there: a served store, models that give ids and models that do not, taken ports."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import Agl
from typer.testing import CliRunner

from agl.cli.app import app
from agl.doctor.call import EchoEngine, call
from agl.doctor.machine import ports
from agl.doctor.records import served_store
from agl.launch.store_access import StoreAccess
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore


@pytest.fixture
def agl(in_folder: Path) -> Agl:
    """Run the command line in the test's folder; return exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return result.exit_code, result.stdout, result.stderr

    return run


class Silent(EchoEngine):
    """Answers without ids, as most servers do."""

    async def complete_chat(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = await super().complete_chat(request)
        del answer["prompt_token_ids"]
        (choice,) = answer["choices"]
        del choice["token_ids"], choice["logprobs"]
        return answer


async def test_a_call_with_ids_and_logprobs_is_well() -> None:
    (finding,) = await call(LLMProxy(), EchoEngine(), needs_ids=True)
    assert finding.status == "ok"
    assert finding.detail.startswith("echo answers through the proxy in ")
    assert finding.detail.endswith("recorded with token ids and logprobs")


@pytest.mark.parametrize(("needs_ids", "status"), [(False, "ok"), (True, "fail")])
async def test_a_call_without_ids_is_told_by_what_it_is_for(needs_ids: bool, status: str) -> None:
    (finding,) = await call(LLMProxy(), Silent(), needs_ids=needs_ids)
    assert finding.status == status
    assert "recorded without exact ids (" in finding.detail
    assert ("inference=transformers" in (finding.fix or "")) == needs_ids


async def test_a_model_that_refuses_fails_with_its_words() -> None:
    (finding,) = await call(LLMProxy(), None, model="no-such-model")
    assert finding.status == "fail"
    assert finding.detail.startswith("the call to no-such-model is answered with 404: ")


async def test_a_served_store_is_named_and_its_token_tried() -> None:
    async with InMemoryLightningStore() as store:
        access = StoreAccess(token="a-long-secret-of-the-store")
        async with access.serving(store) as served:
            found = await served_store(served.url, "a-long-secret-of-the-store")
            assert [finding.status for finding in found] == ["ok", "ok"]
            assert (await store.health())["identity"] in found[0].detail
            (refused,) = await served_store(served.url, "another-secret-than-that")
            assert refused.status == "fail"
            assert "refuses the token of AGL_STORE_TOKEN" in refused.detail
            assert "secret" not in refused.detail


def test_a_port_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        (finding,) = ports([listener.getsockname()[1]])
    assert finding.status == "warn"


def test_the_machine_is_looked_at_in_lines_and_in_json(agl: Agl, in_folder: Path) -> None:
    code, out, _ = agl("doctor")
    lines = out.splitlines()
    assert code == 0, out
    assert [line.split()[1] for line in lines if line.startswith(("ok", "warn"))][:3] == [
        "python",
        "system",
        "packages",
    ]
    assert any(line.startswith("ok    call          echo answers through the proxy in ") for line in lines)
    assert lines[-1].endswith(" 0 to mend")
    assert list(in_folder.iterdir()) == []
    code, out, _ = agl("doctor", "--json")
    told = json.loads(out)
    assert (code, told["ok"]) == (0, True)
    assert {"status", "what", "detail", "fix"} == set(told["findings"][0])


def test_a_store_that_nobody_serves_is_one_line_to_mend_and_exit_code_one(agl: Agl) -> None:
    code, out, err = agl("doctor", "--store-url", "http://127.0.0.1:9")
    assert code == 1, out
    assert err == ""
    assert "fail  store " in out
    assert "1 to mend" in out.splitlines()[-1]


def test_what_is_wrong_with_a_recipe_is_told_part_by_part(agl: Agl, in_folder: Path) -> None:
    (in_folder / "agent.py").write_text("def agent(task, llm, nothing):\n    print('hello')\n")
    (in_folder / "train.jsonl").write_text('{"q": 1}\n{"q": 2}\n')
    (in_folder / "val.jsonl").write_text('{"q": 2}\nbroken\n')
    code, out, _ = agl(
        "doctor",
        "+recipe=apo_rooms",
        "agent.target=agent.py:agent",
        "data=jsonl",
        "data.train=train.jsonl",
        "data.val=val.jsonl",
        "--json",
    )
    assert code == 1
    failed = {f["what"]: f["detail"] for f in json.loads(out)["findings"] if f["status"] == "fail"}
    assert set(failed) == {"data", "agent"}
    assert failed["data"].startswith("val.jsonl:2: not a JSON value")
    assert failed["agent"].startswith("agent needs a resource 'nothing'")
