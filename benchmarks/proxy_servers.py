"""The servers of benchmarks/proxy.py, each in a process of its own, and the load against one of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
Server = dict[str, Any]
"""``root``, ``paths`` and ``pid``, as an order of proxy_load.py has them."""
_QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}  # else its import asks the internet
_CONFIG = """\
model_list:
  - model_name: policy
    litellm_params:
      model: openai/policy
      api_base: {url}/v1
      api_key: none
general_settings:
  dangerously_permit_weak_or_unset_master_key: true
litellm_settings:
  telemetry: false
  num_retries: 0
"""


@contextmanager
def _script(name: str, *arguments: str) -> Generator[tuple[str, int]]:
    """Run one of our servers; yields the line that it says and its process id. It ends with its input."""
    command = [sys.executable, str(FOLDER / name), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline().strip()
            if not line:
                raise SystemExit(f"{name} does not run")
            yield line, process.pid
        finally:
            process.stdin.close()


@contextmanager
def model_server(*, chunk_seconds: float) -> Generator[Server]:
    """Run the model server."""
    with _script("proxy_upstream.py", "--chunk-seconds", str(chunk_seconds)) as (url, pid):
        yield {"root": url, "paths": ["/v1/chat/completions"], "pid": pid}


@contextmanager
def agl_proxy(upstream: str, *, kind: str, attempts: int) -> Generator[Server]:
    """Run agl's proxy with a store in a file."""
    settings = ["--upstream", f"{upstream}/v1", "--kind", kind, "--attempts", str(attempts)]
    with _script("proxy_served.py", *settings) as (line, _):
        yield json.loads(line)


@contextmanager
def agentlightning_proxy(upstream: str, *, python: str, attempts: int) -> Generator[Server]:
    """Run agentlightning's proxy, which is LiteLLM's with every call recorded in memory."""
    says, told_to = os.pipe()
    command = [python, str(FOLDER / "proxy_peer.py"), f"{upstream}/v1", str(_free_port())]
    with (
        open(says, encoding="utf-8") as said,  # noqa: PTH123 - a descriptor is no path
        subprocess.Popen(
            [*command, "--told", str(told_to), "--attempts", str(attempts)],
            env=os.environ | _QUIET,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(told_to,),
        ) as process,
    ):
        os.close(told_to)
        assert process.stdin is not None
        try:
            line = said.readline()
            if not line:
                raise SystemExit("agentlightning's proxy does not run")
            yield json.loads(line)
        finally:
            process.stdin.close()


@contextmanager
def litellm_proxy(upstream: str, *, python: str) -> Generator[Server]:
    """Run LiteLLM's proxy with one worker, as `litellm --config` does. It records nothing."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(_CONFIG.format(url=upstream), encoding="utf-8")
        address = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
        script = str(Path(python).parent / "litellm")
        command = [python, script, "--config", str(config), *address]
        with subprocess.Popen(
            command,
            env=os.environ | _QUIET,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                root = f"http://127.0.0.1:{port}"
                _await_answer(f"{root}/health/liveliness", process)
                yield {"root": root, "paths": ["/v1/chat/completions"], "pid": process.pid}
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 180.0
    while True:
        try:
            urllib.request.urlopen(url, timeout=5.0).close()
        except OSError:
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("litellm does not run") from None
            time.sleep(0.5)
        else:
            return


def loaded(server: Server, **order: Any) -> Mapping[str, Any]:
    """Run the clients against a server and return their numbers."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "proxy_load.py")],
        input=json.dumps(server | order),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the clients failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)
