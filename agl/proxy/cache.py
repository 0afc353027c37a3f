"""The response cache: an equal request is answered with the answer to the first one, out of the store.

The record is the cache: it outlives the proxy, and every proxy on one store has the same. A request is equal with all
its sampling parameters and its seed, under the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from agl.errors import ConfigError
from agl.proxy.replays import request_hash
from agl.store.base import SpanLog
from agl.types import Span, SpanQuery
from agl.types import attributes as key

CacheMode = Literal["repeatable", "all"]
MODES = ("repeatable", "all")


def check_mode(mode: str | None) -> None:
    """Check the setting.

    Raises:
        ConfigError: there is no such mode.
    """
    if mode is not None and mode not in MODES:
        raise ConfigError(f"proxy.cache={mode}: one of {', '.join(MODES)}, or null for none")


class ResponseCache:
    """Finds recorded answers by request.

    Args:
        store: the record.
        mode: ``repeatable`` is for requests whose answer does not depend on chance (temperature 0, or a seed), ``all``
            for any, None for none.
    """

    def __init__(self, store: SpanLog, mode: CacheMode | None) -> None:
        self._store = store
        self._mode = mode

    def key_of(
        self,
        request: Mapping[str, Any],
        *,
        policy_version: int | None,
        run_id: str | None,
        with_logprobs: bool,
    ) -> str | None:
        """Return the key under which the answer is kept, None where it is not.

        Args:
            request: what the upstream is asked.
            policy_version: of the weights; those that were trained are a run's own.
            run_id: of the rollout.
            with_logprobs: the client wants to see logprobs, whose tokens' text the record does not hold.
        """
        if self._mode is None or with_logprobs:
            return None
        repeatable = request.get("temperature") == 0 or request.get("seed") is not None
        if self._mode == "repeatable" and not repeatable:
            return None
        weights = "" if not policy_version else f"/{policy_version}/{run_id}"
        return request_hash(request) + weights

    async def find(self, cache_key: str) -> Span | None:
        """Return the call whose answer is kept under the key.

        Raises:
            StoreError: the store cannot be asked.
        """
        page = await self._store.query_spans(SpanQuery(attributes={key.CACHE_KEY: cache_key}, limit=1))
        return page.items[0] if page.items else None
