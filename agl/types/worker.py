"""Workers: the runner processes' rows in the store."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agl.types.record import Json, Record

WorkerStatus = Literal["idle", "busy", "offline"]


class Worker(Record):
    """A runner as the store knows it."""

    worker_id: str
    host: str = ""
    pid: int = 0
    status: WorkerStatus = "idle"
    attempts: tuple[str, ...] = ()
    """Ids of the attempts in its hands at the last heartbeat."""
    registered_at: float
    last_heartbeat_at: float
    stats: dict[str, Json] = Field(default_factory=dict)
