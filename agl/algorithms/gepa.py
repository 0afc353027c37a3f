"""GEPA: reflective prompt evolution: a model reads transcripts and writes better prompts; each task keeps its best.

Agrawal et al. 2025 (arXiv:2507.19457, algorithm 1), by their ``gepa`` package: it chooses parents (from the Pareto
front over the selection tasks), minibatches and survivors. Rollouts, questions, budgets and resuming are agl's: the
package asks an adapter, from a thread of its own, and keeps no state on disk. A resumed run lets it begin anew with
the same seed, and answers out of the store what was asked before.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, Literal, TypeVar, cast

from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.feedback import examples
from agl.algorithms.prompts.markup import markup_file, values_of
from agl.algorithms.prompts.ongoing import Search, side_by_side
from agl.algorithms.prompts.search import PromptSearch
from agl.errors import ConfigError, require_extra
from agl.types import PromptTemplate, Rollout

log = logging.getLogger(__name__)
T = TypeVar("T")
Texts = dict[str, str]
"""A candidate as the package has it: the texts of prompts by name."""


@dataclass(frozen=True, kw_only=True)
class GEPA(PromptSearch):
    """Reflective prompt evolution, beside what all searches have.

    Args:
        diversity_temperature: of the reflections; null leaves it to the model.
        iterations: of choosing parents, reflecting on a minibatch each, and trying what came of it.
        proposals_per_iteration: parents, each with a minibatch of its own, that are rewritten side by side.
        minibatch_size: feedback tasks that a reflection reads; a rewrite that earns more on them goes on to all
            selection tasks.
        parents: how they are chosen: among those that are best on some selection task (``pareto``, by how many),
            the best five of these (``top_k_pareto``), the best one (``current_best``), or it with some chance
            (``epsilon_greedy``).
        several_prompts: where an agent has several, rewrite all at once (``together``) or one after another
            (``in_turn``).
        max_merges: candidates made of the prompts of two others, where an agent has several.
        perfect_reward: a minibatch on which every reward is this high shows nothing and is left out; null is never.
        reflect_file: POML of the question; null is agl's own (``algorithms/prompts/reflect.poml``).
    """

    diversity_temperature: float | None = 1.0
    iterations: int = 20
    proposals_per_iteration: int = 1
    minibatch_size: int = 3
    parents: Literal["pareto", "top_k_pareto", "current_best", "epsilon_greedy"] = "pareto"
    several_prompts: Literal["together", "in_turn"] = "in_turn"
    max_merges: int = 0
    perfect_reward: float | None = 1.0
    reflect_file: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_extra("algorithm=gepa", "gepa", "gepa")
        for name in ("iterations", "proposals_per_iteration", "minibatch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if self.max_merges < 0:
            raise ConfigError(f"max_merges={self.max_merges} must not be negative")
        if self.diversity_temperature is not None and self.diversity_temperature < 0:
            raise ConfigError(f"diversity_temperature={self.diversity_temperature} must not be negative")
        self.question_file()

    def question_file(self) -> Path:
        """Return the POML file of the question."""
        return markup_file(self.reflect_file, "reflect.poml", setting="reflect_file")

    def further(self) -> str:
        """Return the setting with which a resumed run searches on."""
        return f"iterations={2 * self.iterations}"

    def optimizer_sampling(self) -> dict[str, Any]:
        """Request parameters of the reflections."""
        return self.sampling_at(self.diversity_temperature)

    def most_rollouts(self, search: Search) -> int:
        """Return how many rollouts the search can take at most."""
        num_tasks = len(search.selection)
        proposals = self.iterations * self.proposals_per_iteration
        return num_tasks + proposals * (2 * self.minibatch_size + num_tasks) + self.max_merges * num_tasks

    async def search(self, search: Search) -> None:
        """Let the package evolve the prompts, and answer what it asks."""
        bridge = Bridge(asyncio.get_running_loop())
        await bridge.run(lambda: self._evolve(search, bridge))

    def _evolve(self, search: Search, bridge: Bridge) -> None:
        """Run the package; in a thread."""
        import gepa.api
        from gepa.strategies.proposal_sampling import IndependentSampling

        population = _Population(search=search, bridge=bridge, settings=self)
        seed = Random(f"{search.context.seed}/gepa").getrandbits(31)
        cast("Any", gepa.api).optimize(
            seed_candidate=population.texts_of(search.start),
            trainset=list(search.feedback),
            valset=list(search.selection),
            adapter=population,
            reflection_strategy=population,
            candidate_selection_strategy=self.parents,
            skip_perfect_score=self.perfect_reward is not None,
            perfect_score=self.perfect_reward,
            reflection_minibatch_size=min(self.minibatch_size, len(search.feedback)),
            module_selector="all" if self.several_prompts == "together" else "round_robin",
            use_merge=self.max_merges > 0,
            max_merge_invocations=self.max_merges,
            sampling_strategy=IndependentSampling(self.proposals_per_iteration),
            stop_callbacks=lambda state: (  # pyright: ignore[reportUnknownLambdaType]
                bridge.has_ended or cast("Any", state).i + 1 >= self.iterations
            ),
            logger=_Log(),
            callbacks=[population],
            track_best_outputs=False,
            seed=seed,
        )


class _Log:
    """The package's log as ours."""

    def log(self, message: str) -> None:
        log.debug("%s", message)


class Bridge:
    """Lets a thread wait for work of the event loop. The first error ends all: nothing more is begun.

    Args:
        loop: where the work is done.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._error: BaseException | None = None
        self._pending: Future[Any] | None = None
        self._is_closed = False
        self._beginning = Lock()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can be asked for."""
        return self._is_closed or self._error is not None

    async def run(self, program: Callable[[], None]) -> None:
        """Run the program in a thread to its end; where this is cancelled, give up what it waits for.

        Raises:
            BaseException: the first error of the work that it asked for: it may have swallowed it.
        """
        thread = asyncio.ensure_future(asyncio.to_thread(program))
        try:
            await asyncio.shield(thread)
        except BaseException:
            with self._beginning:  # work that runs already may not be known yet
                self._is_closed = True
                if self._pending is not None:
                    self._pending.cancel()
            await asyncio.wait([thread])
            self._raise_error()
            raise
        self._raise_error()

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work on the loop and return its result; called in the thread.

        Raises:
            BaseException: what the work raised, or what any earlier work did.
        """
        self._raise_error()

        async def done() -> T:
            return await work()

        with self._beginning:
            if self._is_closed:
                raise CancelledError
            self._pending = asyncio.run_coroutine_threadsafe(done(), self._loop)
        try:
            return self._pending.result()
        except CancelledError:
            self._is_closed = True
            raise
        except BaseException as error:
            self._error = self._error or error
            raise

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


@dataclass(kw_only=True)
class _Population:
    """The agent as the package sees it: its adapter, its reflecting model, and its observer. All in the thread.

    Tasks are their numbers, candidates the texts of their prompts.
    """

    search: Search
    bridge: Bridge
    settings: GEPA
    propose_new_texts: None = None
    _known: dict[tuple[tuple[str, str], ...], Candidate] = field(
        default_factory=dict[tuple[tuple[str, str], ...], Candidate]
    )
    _prompts: dict[tuple[str, str], PromptTemplate] = field(
        default_factory=dict[tuple[str, str], PromptTemplate]
    )
    _num_questions: int = 0

    def texts_of(self, candidate: Candidate) -> Texts:
        """Return a candidate as the package has it, and know it again."""
        texts = {name: prompt.template for name, prompt in candidate.prompts.items()}
        self._known.setdefault(_key(texts), candidate)
        for name, prompt in candidate.prompts.items():
            self._prompts.setdefault((name, prompt.template), prompt)
        return texts

    def candidate_of(self, texts: Texts) -> Candidate:
        """Return what the package calls by these texts; it makes new ones itself by merging two."""
        if _key(texts) not in self._known:
            prompts = {name: self._prompts[name, text] for name, text in texts.items()}
            self._known[_key(texts)] = Candidate(prompts=prompts, made_by="merge")
        return self._known[_key(texts)]

    # --- What the package's adapter does --------------------------------------------------------------------------

    def evaluate(self, batch: list[int], candidate: Texts, capture_traces: bool = False) -> Any:  # noqa: FBT001, FBT002, ARG002 - the package's signature
        """Run a candidate on tasks."""
        return self.batch_evaluate([(candidate, batch)])[0]

    def batch_evaluate(self, items: list[tuple[Texts, list[int]]]) -> list[Any]:
        """Run candidates on tasks, side by side.

        A rollout without a reward ranks right below the worst reward seen; the reflection reads why it has none.
        """
        from gepa.core.adapter import EvaluationBatch

        pairs = [(self.candidate_of(texts), batch) for texts, batch in items]
        self.bridge.call(lambda: _scored(self.search, pairs))
        scorer = self.search.scorer
        batches: list[Any] = []
        for candidate, batch in pairs:
            rewards = scorer.scores_of(candidate, batch).rewards
            below = math.nextafter(scorer.worst_reward, -math.inf)
            scores = [below if (reward := rewards[task]) is None else reward for task in batch]
            rollouts = [scorer.rollout_of(candidate, task) for task in batch]
            made: Any = EvaluationBatch(
                outputs=[rollout.rollout_id for rollout in rollouts], scores=scores, trajectories=rollouts
            )
            batches.append(made)
        return batches

    def make_reflective_dataset(
        self,
        candidate: Texts,  # noqa: ARG002 - the package's signature
        eval_batch: Any,
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the conversations of a minibatch with what came of each; failures with their cause."""
        rollouts: list[Rollout] = eval_batch.trajectories
        store = self.search.context.store
        shown = [one.as_json() for one in self.bridge.call(lambda: examples(store, rollouts))]
        return dict.fromkeys(components_to_update, shown)

    # --- What the package's reflecting model does -----------------------------------------------------------------

    def reflect(
        self,
        candidate: Texts,
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> tuple[Any, _Population]:
        """Ask for new texts of some prompts of a candidate."""
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(
        self, jobs: Sequence[tuple[Texts, Mapping[str, Sequence[Mapping[str, Any]]], list[str]]]
    ) -> list[tuple[Any, _Population]]:
        """Ask for all side by side; a text that cannot be used is left out, and counted by the search."""
        from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal

        questions = [
            (self.candidate_of(texts), name, dataset[name], self._next_question())
            for texts, dataset, names in jobs
            for name in names
        ]
        answers = iter(
            self.bridge.call(lambda: side_by_side([self._answer(*question) for question in questions]))
        )
        proposals: list[Any] = []
        for texts, _, names in jobs:
            parent = child = self.candidate_of(texts)
            for name in names:
                answer = next(answers)
                if answer is not None:
                    child = self.search.taken(answer, child, name, made_by="reflection") or child
            new = {} if child is parent else self.texts_of(_child(child, parent))
            changed = {name: text for name, text in new.items() if text != texts[name]}
            proposals.append(ReflectionProposal(new_texts=changed))
        return [(proposal, self) for proposal in proposals]

    async def _answer(
        self, candidate: Candidate, name: str, shown: Sequence[Mapping[str, Any]], number: int
    ) -> str | None:
        values = {**values_of(candidate, name), "examples": [dict(one) for one in shown]}
        messages = await self.search.questions.messages(self.settings.question_file(), values)
        return await self.search.asked(f"reflect-{number}", messages)

    def _next_question(self) -> int:
        self._num_questions += 1
        return self._num_questions

    # --- What the package's observer does -------------------------------------------------------------------------

    def on_iteration_end(self, event: Mapping[str, Any]) -> None:
        """Report an iteration."""
        if self.bridge.has_ended:
            return
        if event["proposal_accepted"]:
            best = self.search.best
            self.search.context.metrics.note(
                f"iteration {event['iteration']}: best: {self.search.scores_of(best)} ({best.candidate_id})"
            )
        self.bridge.call(self.search.report)


def _key(texts: Texts) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(texts.items()))


def _child(child: Candidate, parent: Candidate) -> Candidate:
    return Candidate(prompts=child.prompts, parent=parent.candidate_id, made_by=child.made_by)


async def _scored(search: Search, pairs: Sequence[tuple[Candidate, Sequence[int]]]) -> None:
    """Score pairs of candidates and tasks side by side, each once, where the budget allows all of them."""
    wanted: dict[str, tuple[Candidate, dict[int, None]]] = {}
    for candidate, tasks in pairs:
        wanted.setdefault(candidate.candidate_id, (candidate, {}))[1].update(dict.fromkeys(tasks))
    await search.check_rollouts([([one], [*tasks]) for one, tasks in wanted.values()])
    # In this order, whichever is done first: of equals the one that came first is the best.
    for one, _ in wanted.values():
        search.candidates.setdefault(one.candidate_id, one)
        search.archive.record(one, search.scores_of(one))
    phase = f"iteration {search.round}"
    await side_by_side([search.score([one], [*tasks], phase=phase) for one, tasks in wanted.values()])
