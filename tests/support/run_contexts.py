"""Contexts for algorithms: a real store, a scripted worker, counting engine and learner."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from fake_engine import CountingEngine
from sampled_batches import ConstantCritic
from scripted_worker import Script, scripted_worker

from agl.adapters.trace import TracerTraceToTriplet
from agl.algorithms.base import RunContext
from agl.algorithms.serving import ServedPolicy
from agl.metrics.base import Progress
from agl.metrics.logger import MetricLogger
from agl.store.base import LightningStore
from agl.types import AttemptedRollout


@dataclass
class Notebook:
    """A sink that keeps everything."""

    values: dict[int, Mapping[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    waits: list[tuple[str, str]] = field(default_factory=list)
    """What a phase waited for, in words."""
    rewound: list[int] = field(default_factory=list)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.values[step] = dict(values)

    def progress(self, progress: Progress) -> None:
        self.phases.append(progress.phase)
        if progress.waiting_for is not None:
            self.waits.append((progress.phase, progress.waiting_for))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def rewind(self, step: int) -> None:
        self.rewound.append(step)

    def close(self) -> None:
        return None


@asynccontextmanager
async def context_of(
    store: LightningStore,
    run_dir: Path,
    script_of: Callable[[AttemptedRollout], Script],
    *,
    train_tasks: Sequence[Any] = tuple(range(8)),
    val_tasks: Sequence[Any] = (100, 101),
    resume: bool = False,
    seed: int = 0,
) -> AsyncGenerator[tuple[RunContext, Notebook, ConstantCritic, list[AttemptedRollout]]]:
    """A context with everything in it, while a worker plays the script."""
    notebook, learner = Notebook(), ConstantCritic()
    await store.add_run(name="test", run_id="run")
    context = RunContext(
        run_id="run",
        run_dir=run_dir,
        seed=seed,
        resume=resume,
        store=store,
        train_tasks=train_tasks,
        val_tasks=val_tasks,
        adapter=TracerTraceToTriplet(),
        policy=ServedPolicy(
            engine=CountingEngine(),
            store=store,
            proxy_url="http://127.0.0.1:1",
            run_id="run",
            new_id=lambda: uuid4().hex,
        ),
        learner=learner,
        metrics=MetricLogger([notebook]),
    )
    async with scripted_worker(store, script_of) as claimed:
        yield context, notebook, learner, claimed
