"""A service on this machine that speaks the Tinker SDK's HTTP, and truly trains: see ``tinker_models``.

Sessions, futures that are polled, requests in the order of their numbers (also where they arrive out of order), zstd
and protobuf, keys exchanged for short-lived tokens, saved states, adapters by signed addresses. Errors on demand.
Source: the requests and answers of tinker 0.38.0's own client.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
import zstandard
from served_asgi import serving_asgi
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from tinker.proto import tinker_public_pb2 as wire
from tinker_models import Example, Sampled, SampledModel, TrainedModel

KEY = "tml-fake-key"
PROTOBUF = "application/x-protobuf"
POLL_SECONDS = 1.0
Fault = int | Literal["drop"]


@dataclass
class PolledFuture:
    """A request under way: the answer that ``retrieve_future`` gives when there is one."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Callable[[], Response] | None = None


@dataclass
class TrainingRun:
    """A model under training, whose requests are executed in the order of their numbers."""

    model: TrainedModel
    next_number: int = 1
    waiting: dict[int, tuple[str, Callable[[], Callable[[], Response]]]] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)


class TinkerMachines:
    """The service's state and its routes."""

    def __init__(self, *, models: dict[str, int], config: dict[str, Any]) -> None:
        self.models, self.config = models, config
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.calls: list[tuple[str, Any]] = []
        self.keys: set[str] = set()
        self.runs: dict[str, TrainingRun] = {}
        self.states: dict[str, tuple[TrainedModel, bytes]] = {}
        self.samplers: dict[str, SampledModel] = {}
        self.sessions: dict[str, tuple[SampledModel, str | None]] = {}
        self.completed: dict[str, list[str]] = defaultdict(list)
        self.news: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.futures: dict[str, PolledFuture] = {}
        self.files: dict[str, Path] = {}
        self.url = ""
        self._folder = Path(tempfile.mkdtemp(prefix="tinker-"))
        self._compute = ThreadPoolExecutor(1)

    def fail(self, operation: str, *faults: Fault) -> None:
        """Answer the next requests of this operation with these statuses, or drop the connection."""
        self.faults[operation].extend(faults)

    def count(self, operation: str) -> int:
        """How many requests of this operation came, those that failed included."""
        return sum(name == operation for name, _ in self.calls)

    def app(self) -> Any:
        """The ASGI application."""
        operations = {name[1:]: getattr(self, name) for name in dir(type(self)) if name.startswith("_on_")}
        paths = {
            "on_client_config": "client/config",
            "on_client_dynamic_config": "client/dynamic_config",
            "on_auth_token": "auth/token",
            "on_finish": "sessions/{session}/finish",
            "on_samplers": "samplers/{sampler}",
            "on_external_weights_urls": "training_runs/{run}/checkpoints/{name:path}/external_weights_urls",
            "on_files": "files/{token}",
        }
        routes = [
            Route(
                f"/api/v1/{paths.get(name, name.removeprefix('on_'))}",
                self._guarded(name.removeprefix("on_"), answer),
                methods=["GET", "POST"],
            )
            for name, answer in operations.items()
        ]
        return Starlette(routes=routes)

    def _guarded(self, operation: str, answer: Any) -> Any:
        async def handle(request: Request) -> Response:
            raw = await request.body()
            if request.headers.get("content-encoding") == "zstd":
                raw = zstandard.ZstdDecompressor().decompress(raw)
            is_json = "json" in request.headers.get("content-type", "")
            body = json.loads(raw) if raw and is_json else raw
            self.calls.append((operation, body))
            if self.faults[operation]:
                fault = self.faults[operation].popleft()
                if fault == "drop":
                    return Response(b"", headers={"content-length": "9"})  # ends before its announced length
                return JSONResponse({"error": f"injected {fault}", "category": "server"}, fault)
            key = request.headers.get("x-api-key", "")
            if key != KEY and key not in self.keys and operation != "files":
                return JSONResponse({"error": f"no such key: {key}"}, 401)
            return await answer(request, body)

        return handle

    async def _on_client_config(self, request: Request, body: Any) -> Response:
        return JSONResponse(self.config)

    async def _on_client_dynamic_config(self, request: Request, body: Any) -> Response:
        return JSONResponse({"sample_cancel_enabled": True})

    async def _on_auth_token(self, request: Request, body: Any) -> Response:
        now = time.time()
        parts = [{"alg": "none"}, {"iat": now, "exp": now + 3600, "iss": "fake", "jti": uuid4().hex}]
        token = (
            ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts) + ".x"
        )
        self.keys.add(token)
        return JSONResponse({"jwt": token})

    async def _on_get_server_capabilities(self, request: Request, body: Any) -> Response:
        models = [{"model_name": name, "max_context_length": size} for name, size in self.models.items()]
        return JSONResponse({"supported_models": models})

    async def _on_create_session(self, request: Request, body: Any) -> Response:
        return JSONResponse({"type": "create_session", "session_id": f"session-{uuid4().hex[:8]}"})

    async def _on_session_heartbeat(self, request: Request, body: Any) -> Response:
        return JSONResponse({"type": "session_heartbeat"})

    async def _on_telemetry(self, request: Request, body: Any) -> Response:
        return JSONResponse({"status": "accepted"})

    async def _on_finish(self, request: Request, body: Any) -> Response:
        return Response(status_code=204)

    async def _on_create_model(self, request: Request, body: Any) -> Response:
        run_id = f"{body['session_id']}:train:{body['model_seq_id']}"

        def work() -> Callable[[], Response]:
            self.runs[run_id] = TrainingRun(TrainedModel(body["base_model"], body["lora_config"]))
            return lambda: JSONResponse({"type": "create_model", "model_id": run_id})

        return self._promised(work)

    async def _on_get_info(self, request: Request, body: Any) -> Response:
        model = self.runs[body["model_id"]].model
        data = {"model_name": model.base_model, "tokenizer_id": model.base_model, "arch": "llama"}
        rank = model.lora["rank"]
        return JSONResponse(
            {"model_data": data, "model_id": body["model_id"], "is_lora": True, "lora_rank": rank}
        )

    async def _on_forward_backward(self, request: Request, body: bytes) -> Response:
        asked = wire.ForwardBackwardRequest.FromString(body)
        config = {name: value.number for name, value in asked.loss_fn_config_v2.items()}
        data = [_example(datum) for datum in asked.data]

        def work(run: TrainingRun) -> Callable[[], Response]:
            lines, total = run.model.forward_backward(
                data, asked.loss_fn, config, forward_only=asked.forward_only
            )
            return lambda: Response(_output(lines, total), media_type=PROTOBUF)

        return self._in_order(asked.model_id, asked.seq_id, work)

    async def _on_optim_step(self, request: Request, body: Any) -> Response:
        def work(run: TrainingRun) -> Callable[[], Response]:
            metrics = run.model.optim_step(body["adam_params"])
            return lambda: JSONResponse({"metrics": metrics})

        return self._in_order(body["model_id"], body["seq_id"], work)

    async def _on_save_weights(self, request: Request, body: Any) -> Response:
        def work(run: TrainingRun) -> Callable[[], Response]:
            path = f"tinker://{body['model_id']}/weights/{body['path']}"
            assert path not in self.states, f"{path} is there already"
            self.states[path] = (run.model, run.model.state())
            return lambda: JSONResponse({"type": "save_weights", "path": path})

        return self._in_order(body["model_id"], body["seq_id"], work)

    async def _on_load_weights(self, request: Request, body: Any) -> Response:
        run_id = f"{body['session_id']}:train:{body['model_seq_id']}"

        def work() -> Callable[[], Response]:
            if body["path"] not in self.states:
                return lambda: JSONResponse({"error": f"no checkpoint {body['path']}", "category": "user"})
            made, state = self.states[body["path"]]
            model = TrainedModel(made.base_model, made.lora)
            model.restore(state)
            self.runs[run_id] = TrainingRun(model)
            return lambda: JSONResponse({"type": "load_weights", "path": body["path"], "model_id": run_id})

        return self._promised(work)

    async def _on_save_weights_for_sampler(self, request: Request, body: Any) -> Response:
        def work(run: TrainingRun) -> Callable[[], Response]:
            path = f"tinker://{body['model_id']}/sampler_weights/{body['path']}"
            assert path not in self.samplers, f"{path} is there already"
            self.samplers[path] = run.model.sampler()
            return lambda: JSONResponse({"type": "save_weights_for_sampler", "path": path})

        return self._in_order(body["model_id"], body["seq_id"], work)

    async def _on_save_weights_external(self, request: Request, body: Any) -> Response:
        def work(run: TrainingRun) -> Callable[[], Response]:
            path = f"tinker://{body['model_id']}/external_weights/{body['path']}"
            files = run.model.export(self._folder / uuid4().hex)
            self.files |= {f"{body['path']}:{name}": file for name, file in files.items()}
            return lambda: JSONResponse({"type": "save_weights_external", "path": path})

        return self._in_order(body["model_id"], body["seq_id"], work)

    async def _on_external_weights_urls(self, request: Request, body: Any) -> Response:
        name = request.path_params["name"].removeprefix("external_weights/")
        urls = {
            token.partition(":")[2]: f"{self.url}/api/v1/files/{token}"
            for token in self.files
            if token.startswith(f"{name}:")
        }
        return JSONResponse({"urls": urls, "expires": "2099-01-01T00:00:00Z"})

    async def _on_files(self, request: Request, body: Any) -> Response:
        return FileResponse(self.files[request.path_params["token"]])

    async def _on_create_sampling_session(self, request: Request, body: Any) -> Response:
        path, base = body.get("model_path"), body.get("base_model")
        if path is not None and path not in self.samplers:
            return JSONResponse({"error": f"no sampler weights {path}"}, 404)
        loop = asyncio.get_running_loop()
        model = (
            self.samplers[path]
            if path is not None
            else await loop.run_in_executor(self._compute, SampledModel.of_base, base)
        )
        session_id = f"{body['session_id']}:sample:{body['sampling_session_seq_id']}"
        self.sessions[session_id] = (model, path)
        return JSONResponse({"type": "create_sampling_session", "sampling_session_id": session_id})

    async def _on_samplers(self, request: Request, body: Any) -> Response:
        sampler_id = request.path_params["sampler"]
        model, path = self.sessions[sampler_id]
        return JSONResponse({"sampler_id": sampler_id, "base_model": model.base_model, "model_path": path})

    async def _on_asample(self, request: Request, body: Any) -> Response:
        session_id, count = body["sampling_session_id"], body["num_samples"]
        prompt = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]

        def work() -> Callable[[], Response]:
            sampled = self.sessions[session_id][0].sample(prompt, count, body["sampling_params"])
            return lambda: Response(_samples(sampled), media_type=PROTOBUF)

        ids = [uuid4().hex for _ in range(count)]
        return self._promised(work, session_id=session_id, sample_sequence_ids=ids)

    async def _on_cancel_future(self, request: Request, body: Any) -> Response:
        return Response(status_code=204)

    async def _on_retrieve_futures(self, request: Request, body: Any) -> Response:
        session_id, cursor = body["target"]["sampling_session_id"], body["prev_cursor"]
        done, news = self.completed[session_id], self.news[session_id]
        news.clear()
        if len(done) == cursor and body.get("timeout") is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), POLL_SECONDS)
        completions = [
            {"state": "finished", "request_id": one, "response_payload_uncompressed_size": 9}
            for one in done[cursor:]
        ]
        return JSONResponse({"completions": completions, "cursor": len(done)})

    async def _on_retrieve_future(self, request: Request, body: Any) -> Response:
        future = self.futures.get(body["request_id"])
        if future is None:
            return JSONResponse({"error": "the promise has expired"}, 410)
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await future.done.wait()
        except TimeoutError:
            return JSONResponse({"type": "try_again", "queue_state": "active"}, 408)
        assert future.answer is not None
        return future.answer()

    def _in_order(
        self, run_id: str, number: int, work: Callable[[TrainingRun], Callable[[], Response]]
    ) -> Response:
        run = self.runs[run_id]
        if number not in run.ids:  # a request that is sent again is the same one
            request_id = run.ids[number] = uuid4().hex
            self.futures[request_id] = PolledFuture()
            run.waiting[number] = (request_id, lambda: work(run))
            while run.next_number in run.waiting:
                self._start(*run.waiting.pop(run.next_number))
                run.next_number += 1
        return JSONResponse({"request_id": run.ids[number], "model_id": run_id})

    def _promised(
        self, work: Callable[[], Callable[[], Response]], session_id: str | None = None, **more: Any
    ) -> Response:
        request_id = uuid4().hex
        self.futures[request_id] = PolledFuture()
        self._start(request_id, work, session_id)
        return JSONResponse({"request_id": request_id, **more})

    def _start(
        self, request_id: str, work: Callable[[], Callable[[], Response]], session_id: str | None = None
    ) -> None:
        loop, future = asyncio.get_running_loop(), self.futures[request_id]

        def run() -> None:
            try:
                answer = work()
            except Exception as error:  # noqa: BLE001 - as the service: the request has failed
                text = f"{type(error).__name__}: {error}"
                answer = lambda: JSONResponse({"error": text, "category": "server"})  # noqa: E731
            loop.call_soon_threadsafe(finish, answer)

        def finish(answer: Callable[[], Response]) -> None:
            future.answer = answer
            future.done.set()
            if session_id is not None:
                self.completed[session_id].append(request_id)
                self.news[session_id].set()

        self._compute.submit(run)


def _example(datum: wire.Datum) -> Example:
    tokens = [
        token
        for chunk in datum.model_input
        for token in np.frombuffer(chunk.encoded_text.tokens, dtype=np.int32).tolist()
    ]
    kinds = {wire.DTYPE_FLOAT32: np.float32, wire.DTYPE_INT64: np.int64}
    inputs = {
        name: np.frombuffer(tensor.dense, dtype=kinds[tensor.dtype]).tolist()
        for name, tensor in datum.loss_fn_inputs.items()
    }
    assert all(len(line) == len(tokens) for line in inputs.values()), "one entry for each input token"
    return Example(tokens=tokens, inputs=inputs)


def _output(lines: list[list[float]], total: float) -> bytes:
    arrays = [np.asarray(line, dtype=np.float32) for line in lines]
    offsets = np.cumsum([0, *(array.nbytes for array in arrays)], dtype=np.int64)
    data = b"".join(array.tobytes() for array in arrays)
    batched = wire.BatchedTensor(data=data, offsets=offsets.tobytes(), dtype=wire.DTYPE_FLOAT32)
    record = wire.ArrayRecord(type_tag="ArrayRecord", fields={"logprobs": batched}, num_datums=len(lines))
    return wire.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record], metrics={"loss:sum": total}
    ).SerializeToString()


def _samples(sampled: list[Sampled]) -> bytes:
    reasons = {"stop": wire.STOP_REASON_STOP, "length": wire.STOP_REASON_LENGTH}
    return wire.SampleResponse(
        sequences=[
            wire.SampledSequence(
                stop_reason=reasons[one.stop_reason],
                tokens=np.asarray(one.tokens, dtype=np.int32).tobytes(),
                logprobs=np.asarray(one.logprobs, dtype=np.float32).tobytes(),
            )
            for one in sampled
        ]
    ).SerializeToString()


@contextmanager
def tinker_machines(models: dict[str, int], **config: Any) -> Iterator[TinkerMachines]:
    """Serve these models (with their longest sequences) in a thread of its own until the block ends."""
    defaults = {
        "pjwt_auth_enabled": True,
        "proto_compress_fwdbwd": True,
        "sample_use_retrieve_futures": True,
        "fwdbwd_max_chunk_len": 5,
    }
    machines = TinkerMachines(models=models, config=defaults | config)
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving_asgi(machines.app()) as machines.url:
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="tinker-machines")
    thread.start()
    assert ready.wait(30), "the service did not start"
    try:
        yield machines
    finally:
        stop.set()
        thread.join()
