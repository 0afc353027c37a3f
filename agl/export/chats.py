"""what=sft: good interactions as OpenAI's chat JSONL, chosen as ``algorithm=sft`` chooses them.

The store is read twice: once to choose, with a few numbers of each rollout in memory, and once to write.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import orjson

from agl.adapters.trace import TracerTraceToTriplet
from agl.adapters.triplets import is_cut_off
from agl.algorithms.tuning.examples import curated, task_text
from agl.errors import AglError, ConfigError
from agl.evaluation.rollouts import REPLAY_OF, spans_of_rollout
from agl.export.chat_lines import Chat, chats_from_spans, problem_of
from agl.export.origin import Origin
from agl.export.selection import Exported, OnRollout, RolloutFilter, unheard
from agl.export.whole import appearing
from agl.store.base import LightningStore
from agl.store.opening import FILE_IN_RUN
from agl.types import Mode, Rollout, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interaction:
    """What of a rollout says whether it is worth imitating."""

    example_id: str
    task: str
    reward: float | None
    is_cut_off: bool
    content: Hashable


@dataclass(frozen=True, kw_only=True)
class ChatExport:
    """Conversations of succeeded rollouts to fine-tune a model on.

    Args:
        run_id: of this run only.
        mode: of these rollouts; null is all.
        min_reward: rollouts with less, or without a reward, are left out.
        top_k: of each task only the so many best; null is all.
        dedupe: of rollouts of a task in which the same was said keep one.
        agents: names or regular expressions of the agents whose conversations are taken; null is everyone.
    """

    run_id: str | None = None
    mode: Mode | None = "train"
    min_reward: float = 1.0
    top_k: int | None = None
    dedupe: bool = True
    agents: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self._filter()
        TracerTraceToTriplet(agents=self.agents)  # refuses patterns that are none
        if math.isnan(self.min_reward):
            raise ConfigError(f"min_reward={self.min_reward} must be a number")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k={self.top_k} must be at least 1, or null for all")

    def is_in(self, run_dir: Path) -> bool:
        """Whether the run's records are in its folder."""
        return (run_dir / FILE_IN_RUN).is_file()

    def default_path(self, origin: Origin) -> Path:
        """Return the file that is written where none is named."""
        del origin
        return Path("sft.jsonl")

    async def write(
        self, origin: Origin, path: Path, *, force: bool = False, on_rollout: OnRollout = unheard
    ) -> Exported:
        """Write the file.

        Raises:
            ConfigError: it is there already.
            AglError: no rollout is good enough.
        """
        left_out: Counter[str] = Counter()
        conversations = 0
        async with origin.opened() as store:
            with appearing(path, force=force) as partial:
                chosen = await self._chosen(store, left_out, on_rollout)
                with partial.open("wb") as file:
                    for rollout_id in chosen:
                        for chat in self._chats(await spans_of_rollout(store, rollout_id)):
                            file.write(orjson.dumps(chat.as_json()) + b"\n")
                            conversations += 1
                if not chosen:
                    raise AglError(self._nothing(store, left_out))
        return Exported(
            path=path, counts={"conversations": conversations, "rollouts": len(chosen)}, left_out=left_out
        )

    def _filter(self) -> RolloutFilter:
        return RolloutFilter(run_id=self.run_id, status="succeeded", mode=self.mode, min_reward=None)

    def _chats(self, spans: Sequence[Span]) -> list[Chat]:
        return chats_from_spans(spans, agents=self.agents)

    async def _chosen(
        self, store: LightningStore, left_out: Counter[str], on_rollout: OnRollout
    ) -> list[str]:
        """Return the ids of the rollouts that are worth imitating, in their order."""
        found: list[_Interaction] = []
        seen = 0
        async for rollout in self._filter().rollouts(store):
            seen += 1
            on_rollout(seen)
            cause = await self._judged(store, rollout, found)
            if cause is not None:
                left_out[cause] += 1
        best = curated(found, min_reward=self.min_reward, top_k=self.top_k, dedupe=self.dedupe)
        left_out += best.left_out
        return [one.example_id for one in best.examples]

    async def _judged(self, store: LightningStore, rollout: Rollout, found: list[_Interaction]) -> str | None:
        """Add what says how good the rollout is, or return why it cannot be used."""
        if REPLAY_OF in rollout.metadata:
            return "replay"
        if rollout.reward is None:
            return "without_reward"
        if rollout.reward < self.min_reward:
            return "below_reward"
        spans = await spans_of_rollout(store, rollout.rollout_id)
        chats = self._chats(spans)
        if not chats:
            return "no_calls"
        problem = next((problem for problem in map(problem_of, chats) if problem is not None), None)
        if problem is None:
            found.append(
                _Interaction(
                    example_id=rollout.rollout_id,
                    task=_digest(task_text(rollout.task).encode()),
                    reward=rollout.reward,
                    is_cut_off=is_cut_off(spans, agents=self.agents),
                    content=_digest(orjson.dumps([_said(chat) for chat in chats])),
                )
            )
        return problem

    def _nothing(self, store: LightningStore, left_out: Counter[str]) -> str:
        causes = ", ".join(f"{cause} {count}" for cause, count in left_out.most_common())
        return (
            f"nothing to export: {store.location} has no succeeded {self.mode or ''} rollout with"
            f" min_reward={self.min_reward:g}{'' if self.run_id is None else f' and run_id={self.run_id}'}"
            f"{f' (left out: {causes})' if causes else ''}; a lower min_reward=... or"
            " another mode=... takes more"
        )


def _said(chat: Chat) -> object:
    """What was said, without the ids of tool calls: models make them up anew each time."""
    ids: dict[object, int] = {}
    messages: list[object] = []
    for message in chat.messages:
        calls = [
            [ids.setdefault(call["id"], len(ids)), call["function"]]
            for call in message.get("tool_calls") or ()
        ]
        answered = ids.get(message.get("tool_call_id"))
        messages.append([message["role"], message["content"], calls, answered])
    return [messages, chat.tools, sorted(chat.answers)]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
