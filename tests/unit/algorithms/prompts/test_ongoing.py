"""A search under way: paired halving, hard budgets, outages told apart from bad prompts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from prompt_searches import START, Bench, bench, proxied_call
from scripted_worker import Script

from agl.algorithms.apo import APO
from agl.algorithms.prompts.candidate import Candidate
from agl.algorithms.prompts.endings import OptimizerDownError, OutageError, SearchEndedError
from agl.algorithms.prompts.ongoing import Search, side_by_side
from agl.algorithms.prompts.spending import Budget, Spent, seconds_so_far
from agl.errors import RunStoppedError
from agl.store.sqlite import InMemoryLightningStore
from agl.types import RolloutQuery, RolloutRequest

SETTINGS = APO(val_batch_size=8, max_attempts=1)


def by_length(text: str, _task: int) -> Script:
    """Longer prompts are better, up to a reward of 1."""
    return Script(reward=min(1.0, len(text) / 100))


@asynccontextmanager
async def at(tmp_path: Path, settings: APO = SETTINGS, **given: Any) -> AsyncGenerator[Bench]:
    async with (
        InMemoryLightningStore() as store,
        bench(store, tmp_path, settings, **{"script": by_length, "num_tasks": 12, **given}) as found,
    ):
        yield found


def longer(search: Search, *lengths: int) -> list[Candidate]:
    return [search.start.changed("prompt", "{task}".ljust(length, "."), made_by="test") for length in lengths]


async def test_halving_runs_the_better_half_on_more_tasks(tmp_path: Path) -> None:
    async with at(tmp_path) as found:
        search = found.search
        candidates = longer(search, 20, 50, 30, 60, 40, 70, 10, 80)
        best = await search.select(candidates, 2)
        assert [len(one.prompts["prompt"].template) for one in best] == [80, 70]
        # 8 on 2 tasks, 4 on 4, 2 on 8: the same tasks for all
        seen = {one.candidate_id: len(search.scores_of(one).rewards) for one in candidates}
        assert sorted(seen.values()) == [2, 2, 2, 2, 4, 4, 8, 8]
        assert search.scorer.spent.rollouts == 8 * 2 + 4 * 2 + 2 * 4
        assert search.best == best[0]


async def test_equal_candidates_are_compared_once_and_the_first_wins(tmp_path: Path) -> None:
    async with at(tmp_path) as found:
        first, second = longer(found.search, 40, 40)
        other = found.search.start.changed("prompt", "{task}".rjust(40, "-"), made_by="test")
        best = await found.search.select([first, second, other], 1)
        assert best == [first]
        assert found.search.scorer.spent.rollouts == 2 * 2 + 6  # two on 2 tasks, then one on the other 6
        assert len(found.search.candidates) == 2


async def test_with_nobody_to_leave_out_all_run_on_all_tasks_at_once(tmp_path: Path) -> None:
    async with at(tmp_path) as found:
        await found.search.select(longer(found.search, 40, 50), 3)
        assert found.search.scorer.spent.rollouts == 16
        assert "selecting 2" in found.notebook.phases


async def test_a_candidate_that_fails_on_hard_tasks_does_not_win_by_it(tmp_path: Path) -> None:
    def script(text: str, task: int) -> Script:
        if text == START:
            return Script(reward=0.0 if task % 6 == 0 else 1.0)
        return Script(error="ValueError") if task % 3 == 0 else Script(reward=1.0)

    async with at(tmp_path, script=script) as found:
        await found.search.begin()
        (child,) = longer(found.search, 40)
        await found.search.score([child], found.search.selection)
        assert found.search.scores_of(child).mean == 1.0
        assert found.search.best == found.search.start


async def test_all_candidates_failing_ends_the_search_with_the_best_so_far(tmp_path: Path) -> None:
    def script(text: str, _task: int) -> Script:
        return Script(reward=0.5) if text == START else Script(error="ValueError")

    async with at(tmp_path, script=script) as found:
        await found.search.begin()
        with pytest.raises(SearchEndedError, match="all 2 candidates fail too often; the first: ValueError"):
            await found.search.select(longer(found.search, 40, 50), 1)
        assert found.search.best == found.search.start


async def test_an_outage_is_told_from_bad_prompts_and_its_rollouts_run_again(tmp_path: Path) -> None:
    up = {"up": True}

    def script(_text: str, _task: int) -> Script:
        return Script(reward=0.5) if up["up"] else Script(error="APIConnectionError")

    async with at(tmp_path, script=script) as found:
        search = found.search
        await search.begin()
        children = longer(search, 40, 50)
        up["up"] = False
        with pytest.raises(OutageError, match=r"first prompts too.*APIConnectionError"):
            await search.score(children, search.selection)
        up["up"] = True
        resumed = replace(
            search,
            scorer=type(search.scorer)(
                found.context,
                sampling=search.settings.agent_sampling(),
                config=search.settings.rollout_config(),
            ),
        )
        scores = await resumed.score(children, search.selection)
        assert [one.bad_fraction for one in scores] == [0.0, 0.0]


async def test_first_prompts_that_do_not_work_stop_the_run_and_run_again_when_resumed(tmp_path: Path) -> None:
    async with at(tmp_path, script=lambda _text, _task: Script(error="KeyError")) as found:
        with pytest.raises(RunStoppedError, match=r"8 of 8 rollouts with the first prompts.*KeyError"):
            await found.search.begin()
        rollouts = (await found.context.store.query_rollouts(RolloutQuery(run_id="run"))).items
        assert all(rollout.metadata["abandoned"] for rollout in rollouts)


async def test_the_start_says_what_is_likely_to_come(tmp_path: Path) -> None:
    async with at(
        tmp_path, replace(SETTINGS, beam_rounds=1, branch_factor=2, feedback_batch_size=4)
    ) as found:
        await found.search.begin()
    # 8 to begin with, 4 for feedback, 2 x 8 to select (the beam takes all)
    assert "first prompts: 0.130 on 8 tasks; the search takes at most 28 rollouts" in found.notebook.notes[0]


async def test_rollouts_beyond_the_budget_are_never_begun(tmp_path: Path) -> None:
    async with at(tmp_path, replace(SETTINGS, budget=Budget(max_rollouts=10))) as found:
        search = found.search
        await search.begin()
        with pytest.raises(SearchEndedError, match=r"next 8 rollouts would pass budget.max_rollouts=10"):
            await search.score(longer(search, 40), search.selection)
        await search.score([search.start], search.selection)  # known already: free
        assert search.scorer.spent.rollouts == 8


async def test_calls_tokens_and_cost_are_projected_from_the_mean(tmp_path: Path) -> None:
    async with at(tmp_path, replace(SETTINGS, budget=Budget(max_tokens=100))) as found:
        search = found.search
        search.scorer.spent = Spent(rollouts=4, calls=4, tokens=40)
        search.check_budget(6)
        with pytest.raises(SearchEndedError, match=r"budget.max_tokens=100"):
            search.check_budget(7)
        search.optimizer.num_asked, search.optimizer.spent = 2, Spent(calls=2, tokens=20)
        search.check_budget(0, num_questions=4)
        with pytest.raises(SearchEndedError):
            search.check_budget(0, num_questions=5)


async def test_a_limit_of_cost_without_prices_is_no_limit_and_refused(tmp_path: Path) -> None:
    async with at(tmp_path, replace(SETTINGS, budget=Budget(max_cost=1))) as found:
        found.search.scorer.spent = Spent(rollouts=4, calls=4, unpriced_calls=4)
        with pytest.raises(RunStoppedError, match=r"max_cost=1 cannot be kept: 4 calls.*proxy.prices"):
            found.search.check_budget(1)
        with pytest.raises(RunStoppedError, match=r"max_cost=1 cannot be kept: 4 calls"):
            await found.search.begin()  # before anything but the first prompts was paid for


async def test_time_runs_only_while_the_search_is_at_work(tmp_path: Path) -> None:
    now = {"now": 100.0}
    async with at(tmp_path, clock=lambda: now["now"]) as found:
        search = found.search
        search.earlier = Spent(seconds=5.0)
        now["now"] = 200.0
        with search.working():
            now["now"] = 207.0
            assert search.spent.seconds == 12.0
        now["now"] = 300.0
        assert search.spent.seconds == 12.0


async def test_what_is_under_way_when_the_time_is_up_is_given_up(tmp_path: Path) -> None:
    never = asyncio.Event()
    async with at(tmp_path, replace(SETTINGS, budget=Budget(max_minutes=0.001))) as found:
        search, store = found.search, found.context.store

        async def stuck() -> None:
            claim = await store.start_rollout(RolloutRequest(task=1, rollout_id="run-stuck", run_id="run"))
            await store.add_many_spans([proxied_call("run-stuck", claim.attempt.attempt_id)])
            await never.wait()

        with pytest.raises(SearchEndedError, match=r"max_minutes=0.001 is spent; 1 rollouts were given up"):
            await search._in_time(stuck())
        rollout = await store.get_rollout_by_id("run-stuck")
        assert (rollout.status, rollout.metadata["abandoned"]) == ("cancelled", True)
        assert search.spent.calls == 1  # its call was paid for


async def test_the_time_at_work_is_written_down_after_each_batch(tmp_path: Path) -> None:
    ticks = count(step=10)
    async with at(tmp_path, clock=lambda: float(next(ticks))) as found:
        with found.search.working():
            await found.search.score([found.search.start], [0, 1])
        assert await seconds_so_far(found.context.store, "run") > 0


async def test_useless_rewrites_are_counted_by_cause(tmp_path: Path) -> None:
    replies = ["", "No.", "<prompt>Solve it</prompt>", "<prompt>Solve", "<prompt>Answer {task}</prompt>"]

    def reply(rollout_id: str, _body: Mapping[str, Any]) -> str:
        return replies[int(rollout_id.rpartition("-")[2])]

    async with at(tmp_path, reply=reply) as found:
        search = found.search
        made = [
            await search.rewritten(
                f"q-{n}", [{"role": "user", "content": "?"}], search.start, "prompt", made_by="x"
            )
            for n in range(5)
        ]
        assert [one and one.prompts["prompt"].template for one in made] == [
            None,
            None,
            "Solve it\n\n{task}",
            None,
            None,
        ]
        assert search.refused == {"empty": 1, "unmarked": 1, "unfinished": 1, "unchanged": 1}
        assert search.repaired == {"placeholder": 1}
        assert search.notes()[1:] == [
            "4 answers of the optimizer model could not be used: empty 1, unmarked 1, unfinished 1, unchanged 1",
            "1 rewrites were mended: placeholder 1",
        ]


async def test_a_dead_optimizer_ends_the_run_unless_something_better_was_found(tmp_path: Path) -> None:
    class Dying(APO):
        async def search(self, search: Search) -> None:
            raise OptimizerDownError("the optimizer model is dead")

    async with at(tmp_path, Dying(val_batch_size=8)) as found:
        await found.search.begin()
        with pytest.raises(RunStoppedError, match="is dead; nothing better was found before"):
            await found.search.run()
        await found.search.score(longer(found.search, 40), found.search.selection)
        assert await found.search.run() == "ended early: the optimizer model is dead"


async def test_a_round_reports_what_it_took_and_the_best(tmp_path: Path) -> None:
    async with at(tmp_path) as found:
        await found.search.begin()
        await found.search.score(longer(found.search, 40), found.search.selection)
        await found.search.report()
    assert sorted(found.notebook.values) == [0, 1]
    values = found.notebook.values[1]
    assert (values["search/best_reward"], values["search/candidates"]) == (0.4, 2.0)
    assert (values["spent/rollouts"], values["rollouts/enqueued"]) == (16.0, 16.0)
    rows = (tmp_path / "prompts" / "candidates.jsonl").read_text().splitlines()
    assert [json.loads(row)["mean_reward"] for row in rows] == [0.13, 0.4]


async def test_side_by_side_waits_for_all_before_it_raises() -> None:
    done: list[int] = []

    async def work(number: int) -> int:
        await asyncio.sleep(0)
        done.append(number)
        if number == 0:
            raise ValueError("zero")
        return number

    assert await side_by_side([work(1), work(2)]) == [1, 2]
    with pytest.raises(ValueError, match="zero"):
        await side_by_side([work(0), work(3)])
    assert done == [1, 2, 0, 3]


async def test_an_unreachable_optimizer_is_down_within_a_search(tmp_path: Path) -> None:
    async with at(tmp_path, reply=lambda _id, _body: httpx.ConnectError("refused")) as found:
        message = [{"role": "user", "content": "?"}]
        assert await found.search.asked("1", message) is None
        assert await found.search.asked("2", message) is None
        with pytest.raises(OutageError, match="refused"):
            await found.search.asked("3", message)


async def test_a_search_too_short_to_notice_a_dead_optimizer_does_not_end_as_if_it_had_searched(
    tmp_path: Path,
) -> None:
    class Asking(APO):
        async def search(self, search: Search) -> None:
            assert await search.asked("1", [{"role": "user", "content": "?"}]) is None

    async with at(
        tmp_path, Asking(val_batch_size=8), reply=lambda _id, _body: httpx.ConnectError("refused")
    ) as found:
        await found.search.begin()
        with pytest.raises(RunStoppedError, match=r"any of 1 questions.*refused; nothing better was found"):
            await found.search.run()


async def test_an_answer_in_the_store_is_free_when_the_budget_is_spent(tmp_path: Path) -> None:
    async with at(
        tmp_path, replace(SETTINGS, budget=Budget(max_calls=1)), reply=lambda _id, _body: "x"
    ) as found:
        message = [{"role": "user", "content": "?"}]
        assert await found.search.asked("1", message) == "x"
        assert await found.search.asked("1", message) == "x"
        with pytest.raises(SearchEndedError, match=r"budget\.max_calls=1"):
            await found.search.asked("2", message)
