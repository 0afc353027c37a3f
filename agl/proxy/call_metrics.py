"""Metrics of the proxy in Prometheus' text format: calls, tokens, cost and times by model and agent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from agl.proxy.accounts import OTHERS, CountedCall

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds in seconds, of whole calls and of first chunks."""
_MAX_LABELS = 256
"""Pairs of model and agent; both names come from clients."""


@dataclass(slots=True)
class _Times:
    """A histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return what Prometheus calls buckets: how many are at most so long."""
        total, found = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


@dataclass(slots=True)
class _Counts:
    """What calls of one model and agent add up to."""

    calls: dict[str, int] = field(default_factory=dict[str, int])
    """By how they ended: ``ok``, ``failed``, ``refused``, ``replayed``."""
    tokens: dict[str, int] = field(default_factory=lambda: {"input": 0, "output": 0, "cached": 0})
    cost_usd: float = 0.0
    without_price: int = 0
    latency: _Times = field(default_factory=_Times)
    first_chunk: _Times = field(default_factory=_Times)


class CallMetrics(Collector):
    """Counts calls since the proxy's start.

    Args:
        calls_under_way: says how many there are.
    """

    def __init__(self, calls_under_way: Callable[[], int]) -> None:
        self._calls_under_way = calls_under_way
        self._counts: dict[tuple[str, str], _Counts] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, call: CountedCall) -> None:
        """Count a call."""
        labels = (call.model, call.agent or "")
        counts = self._counts.get(labels)
        if counts is None:
            if len(self._counts) >= _MAX_LABELS:
                labels = (OTHERS, OTHERS)
            counts = self._counts.setdefault(labels, _Counts())
        end = "replayed" if call.replayed else call.end
        counts.calls[end] = counts.calls.get(end, 0) + 1
        if end in ("replayed", "refused"):
            return
        counts.tokens["input"] += call.input_tokens
        counts.tokens["output"] += call.output_tokens
        counts.tokens["cached"] += call.cached_tokens
        counts.cost_usd += call.cost_usd or 0.0
        counts.without_price += call.is_unpriced
        counts.latency.add(call.latency_seconds)
        if call.first_chunk_seconds is not None:
            counts.first_chunk.add(call.first_chunk_seconds)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        labels = ("model", "agent")
        calls = CounterMetricFamily("agl_proxy_calls", "Calls by how they ended", labels=(*labels, "end"))
        tokens = CounterMetricFamily("agl_proxy_tokens", "Tokens of calls", labels=(*labels, "kind"))
        cost = CounterMetricFamily(
            "agl_proxy_cost_usd", "Cost of the calls whose cost is known", labels=labels
        )
        unknown = CounterMetricFamily(
            "agl_proxy_calls_without_price", "Calls whose cost is not known", labels=labels
        )
        latency = HistogramMetricFamily("agl_proxy_call_seconds", "Time of whole calls", labels=labels)
        first = HistogramMetricFamily(
            "agl_proxy_first_chunk_seconds", "Time to a stream's first chunk", labels=labels
        )
        for named, counts in sorted(self._counts.items()):
            for end, number in sorted(counts.calls.items()):
                calls.add_metric((*named, end), number)
            for kind, number in counts.tokens.items():
                tokens.add_metric((*named, kind), number)
            cost.add_metric(named, counts.cost_usd)
            unknown.add_metric(named, counts.without_price)
            latency.add_metric(named, counts.latency.buckets(), sum_value=counts.latency.seconds)
            first.add_metric(named, counts.first_chunk.buckets(), sum_value=counts.first_chunk.seconds)
        yield from (calls, tokens, cost, unknown, latency, first)
        yield GaugeMetricFamily(
            "agl_proxy_calls_under_way", "Calls that are not answered yet", value=self._calls_under_way()
        )
