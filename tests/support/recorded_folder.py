"""The folder of a run that has ended, with settings by which its rollouts can run again without a model or a socket."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agl.agents.load import load_object
from agl.runners.inline import InlineRunners
from agl.store.sqlite import SqliteLightningStore
from agl.types import PromptTemplate, ProxyLLM, RolloutRequest

CODE = '''
import os
from contextlib import asynccontextmanager

import agl
from agl.proxy import LLMProxy, ProxyServer


class SilentProxy(LLMProxy):
    """Serves without a socket."""

    @asynccontextmanager
    async def serving(self, store, upstream):
        yield ProxyServer(url="http://proxy:1", api_key="none")


async def agent(task, prompt):
    """Rewards half of the task's number; what is odd fails, until there is a file ``fixed``."""
    agl.emit_message(f"{prompt.template} {task}" + os.environ.get("SAID", ""))
    if task % 2 and not os.path.exists("fixed"):
        raise ValueError(f"{task} is odd")
    return task / 2


def grade(task, result):
    if task == 4:
        raise KeyError("four")
    return 1.0 if result else 0.0
'''
SETTINGS = """
agent:
  _target_: agl.agents.function.FunctionAgent
  target: mine.py:agent
proxy:
  _target_: mine.py:SilentProxy
runner:
  _target_: agl.runners.remote.RemoteRunners
trusted: [.]
name: light
run_dir: runs/one
"""


async def recorded_folder(here: Path, tasks: Sequence[Any], *, waiting: int = 0) -> Path:
    """Make ``runs/one`` in the working directory, with rollouts ``one-0``, ``one-1``, ... of these tasks.

    Args:
        here: the working directory.
        tasks: those that are run.
        waiting: further rollouts ``one-waits-0``, ... that nobody executes.
    """
    (here / "mine.py").write_text(CODE)
    folder = here / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(SETTINGS)
    agent = load_object(f"{here}/mine.py:agent")
    assert callable(agent)
    async with SqliteLightningStore(str(folder / "store.sqlite")) as store:
        await store.add_run(name="light", run_id="one", command="train")
        resources = {
            "prompt": PromptTemplate(template="do"),
            "llm": ProxyLLM(base_url="http://gone:1", model="m"),
        }
        await store.add_resources(resources, run_id="one", resources_id="one-resources")

        def request(name: str, task: Any) -> RolloutRequest:
            return RolloutRequest(
                task=task,
                rollout_id=name,
                run_id="one",
                mode="val",
                group_id="g",
                resources_id="one-resources",
                metadata={"seed": 7},
            )

        requests = [request(f"one-{number}", task) for number, task in enumerate(tasks)]
        async with InlineRunners().running(store, agent, run_id="one"):
            await store.enqueue_many_rollouts(requests)
            await store.wait_for_rollouts([str(one.rollout_id) for one in requests])
        late = [request(f"one-waits-{number}", number) for number in range(waiting)]
        await store.enqueue_many_rollouts(late)
        await store.update_run("one", status="succeeded")
    return folder
