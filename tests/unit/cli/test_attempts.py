"""The attempts of a rollout."""

from __future__ import annotations

import pytest
from listed_records import listed_store, made_span

from agl.cli.attempts import attempts_of, chosen_attempt, spans_of_attempt
from agl.errors import ConfigError
from agl.types import ErrorInfo, RolloutConfig, RolloutRequest


async def test_an_attempt_is_named_by_its_number_or_id_and_is_the_newest_otherwise() -> None:
    store, _ = listed_store()
    async with store:
        assert chosen_attempt("r", [], None) is None
        request = RolloutRequest(task=1, rollout_id="r", config=RolloutConfig(max_attempts=2))
        first = await store.start_rollout(request)
        await store.add_span(made_span(1, "s", rollout_id="r", attempt_id="at-1"))
        await store.update_attempt("r", first.attempt.attempt_id, status="failed", error=ErrorInfo(cause="X"))
        await store.start_attempt("r")
        attempts = await attempts_of(store, "r")
        named = [chosen_attempt("r", attempts, one) for one in (None, "1", "at-1", "2")]
        assert [one.sequence_id for one in named if one] == [2, 1, 1, 2]
        assert [span.name for span in await spans_of_attempt(store, attempts[0])] == ["s"]
        assert await spans_of_attempt(store, attempts[1]) == []
    with pytest.raises(ConfigError, match=r"--attempt 3: rollout r .* it has 1 \(at-1\), 2 \(at-2\)"):
        chosen_attempt("r", attempts, "3")
    with pytest.raises(ConfigError, match="it has none yet"):
        chosen_attempt("r", [], "1")
