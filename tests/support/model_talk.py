"""An agent that asks a model twice, its tasks, and commands on its recorded runs, as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TALK = '''
import os

import agl
from openai import AsyncOpenAI


async def agent(task, llm):
    """Asks twice, the second time with the first answer; one of them streamed."""
    async with AsyncOpenAI(base_url=llm.base_url, api_key=llm.api_key) as client:
        messages = [{"role": "user", "content": f"say {task['n']}"}]
        for turn in range(2):
            if turn and os.environ.get("AGAIN"):
                messages[-1] = {"role": "user", "content": os.environ["AGAIN"]}
            stream = await client.chat.completions.create(model=llm.model, messages=messages, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
            agl.emit_message(text)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "and more"}]
    if task["n"] == 1 and not os.path.exists("fixed"):
        raise ValueError("cannot do 1")
    return text


def grade(result):
    return len(result) / 100


def strict(result, spans):
    return float(sum(span.name.startswith("chat ") for span in spans))
'''


def talk_folder(folder: Path, *, num_tasks: int = 2) -> Path:
    """A folder with that agent and its tasks."""
    (folder / "talk.py").write_text(TALK)
    (folder / "tasks.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(num_tasks)))
    return folder


def talk_settings(url: str) -> list[str]:
    """Overrides of ``agl eval`` for it, with the model at that URL."""
    return [
        "agent.target=talk.py:agent",
        "grader=function",
        "grader.function=talk.py:grade",
        "data=jsonl",
        "data.train=tasks.jsonl",
        "data.val=tasks.jsonl",
        "inference=external",
        f"inference.base_url={url}",
        "inference.model=small",
        "name=talk",
    ]


def run_agl(*arguments: str, cwd: Path, **environment: str) -> tuple[int, str, str]:
    """Run a command to its end; return exit code, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "agl", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **environment},
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
