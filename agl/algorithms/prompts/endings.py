"""Why a search ends before its last round."""

from __future__ import annotations

from agl.algorithms.base import RunContext


class SearchEndedError(Exception):
    """The search ends here, with the best so far: a budget is spent, or going on makes no sense.

    Args:
        more: the setting with which a resumed run goes on from here, as ``budget.max_rollouts=400``; empty where there
            is none.
    """

    def __init__(self, message: str, *, more: str = "") -> None:
        super().__init__(message)
        self.more = more


class OutageError(Exception):
    """What the search needs does not work at all: to go on would burn the budget for nothing."""


class OptimizerDownError(OutageError):
    """The optimizer model gave no answer several times in a row."""


async def check_run(context: RunContext) -> None:
    """Check that the run as a whole goes on.

    Raises:
        SearchEndedError: it does not; the message says why.
    """
    if (reason := await context.ends_now()) is not None:
        raise SearchEndedError(reason)
