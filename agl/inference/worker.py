"""The thread that owns the model: commands come in through an inbox, news of calls goes out once a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread

from agl.errors import InferenceError
from agl.inference.rows import Call
from agl.inference.scheduler import Batch, Scheduler, Swap

Command = Callable[[Scheduler], None]


class BatchWorker:
    """Samples calls in its own thread, from ``start`` to ``stop``.

    Args:
        load: makes the batch; runs in the thread, ``ready`` tells how it ended.
        deliver: gets the calls that ended and, once a step, the streamed ones under way, in the thread; must hand
            them over and return.
    """

    def __init__(self, load: Callable[[], Batch], deliver: Callable[[Sequence[Call]], None]) -> None:
        self.ready: Future[None] = Future()
        self._load = load
        self._deliver = deliver
        self._inbox: SimpleQueue[Command | None] = SimpleQueue()
        self._scheduler: Scheduler | None = None
        # A daemon: it never keeps a process alive.
        self._thread = Thread(target=self._run, name="agl-inference", daemon=True)

    @property
    def policy_version(self) -> int:
        """Of the weights served now."""
        return 0 if self._scheduler is None else self._scheduler.policy_version

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, call: Call) -> None:
        """Sample a call; ``deliver`` gets it when it has ended."""
        self._inbox.put(lambda scheduler: scheduler.add(call))

    def cancel(self, call: Call) -> None:
        """Drop a call's rows, wherever they are; it is not delivered."""
        self._inbox.put(lambda scheduler: scheduler.remove(call))

    def swap(self, apply: Callable[[], None], policy_version: int) -> Future[None]:
        """Run ``apply`` in the thread when the calls under way have ended; those that have not begun wait for it."""
        swap = Swap(apply=apply, policy_version=policy_version, done=Future())
        self._inbox.put(lambda scheduler: scheduler.swap(swap))
        return swap.done

    def stop(self) -> None:
        """End the thread after the present step; calls that have not ended fail with 503."""
        self._inbox.put(None)

    def join(self) -> None:
        """Wait until the thread has ended and let go of the batch."""
        self._thread.join()
        self._scheduler = None

    def _run(self) -> None:
        try:
            scheduler = self._scheduler = Scheduler(self._load())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the thread
            self.ready.set_exception(error)
            return
        self.ready.set_result(None)
        try:
            while self._read_inbox(scheduler):
                news = scheduler.advance()
                if news:
                    self._deliver(news)
        finally:
            self._deliver(scheduler.refuse_all(InferenceError("the engine is closed", status=503)))

    def _read_inbox(self, scheduler: Scheduler) -> bool:
        """Execute the commands that have arrived, waiting for one if there is nothing else to do; False is the end."""
        try:
            while True:
                command = self._inbox.get(block=scheduler.idle)
                if command is None:
                    return False
                command(scheduler)
        except Empty:
            return True
