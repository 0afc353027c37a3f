"""Limits: why a loop that moves weights should end between two steps: its budget, or the run as a whole."""

from __future__ import annotations

from dataclasses import replace

from agl.algorithms.base import RunContext
from agl.algorithms.prompts.endings import SearchEndedError
from agl.algorithms.prompts.spending import Budget, Spent
from agl.algorithms.stages.ledger import Ledger

FILE = "budget.json"
"""In the run's folder: how long the run has been at work, for a process that goes on with it."""


class Limits:
    """Looks at what the run took whenever it is asked.

    Args:
        context: the run's parts.
        budget: the algorithm's own; None is none.
    """

    def __init__(self, context: RunContext, budget: Budget | None) -> None:
        self.more = ""
        """The setting with which a run that the budget ended goes on; empty where it has not."""
        self._context, self._budget = context, budget
        file = context.run_dir / FILE
        self._ledger = (
            None
            if budget is None
            else Ledger(context.store, run_id=context.run_id, prefix=context.prefix, file=file)
        )

    async def reached(self, num_rollouts: int = 0, *, prefix: str = "") -> str | None:
        """Return why the loop should end before it asks for so many more rollouts; None where it need not.

        Args:
            num_rollouts: that come next.
            prefix: how their ids begin; what a resumed run finds of them in the store is not asked for again.

        Raises:
            RunStoppedError: there is a limit of cost, and calls whose price nobody knows.
        """
        reason = await self._context.ends_now()
        if reason is not None or self._budget is None or self._ledger is None:
            return reason
        spent = await self._ledger.spent(with_calls=self._budget.counts_calls)
        known = self._ledger.num_counted(prefix) if prefix else 0
        wanted = max(0, num_rollouts - known)
        reason = self._over(self._budget, spent, wanted)
        if reason is not None and not self._budget.counts_calls:  # words with all that was spent
            reason = self._over(self._budget, await self._ledger.spent(with_calls=True), wanted)
        return reason

    def _over(self, budget: Budget, spent: Spent, num_rollouts: int) -> str | None:
        """Which limit so many more rollouts would pass, in words."""
        likely = spent.of_calls(num_rollouts / max(spent.rollouts, 1))
        try:
            budget.check(spent, replace(likely, rollouts=num_rollouts))
        except SearchEndedError as ended:
            self.more = ended.more
            return str(ended)
        return None

    def write(self) -> None:
        """Write the time down for a process that goes on with the run."""
        if self._ledger is not None:
            self._ledger.write()
