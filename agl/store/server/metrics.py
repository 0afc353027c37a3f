"""Metrics: request times and store counts in Prometheus' text format, from a registry per server."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds; a long poll lasts up to 30."""


class RequestTimes(Collector):
    """How often each route answered with each status, and how long it took."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], list[int]] = {}
        self._seconds: dict[tuple[str, str, int], float] = {}

    def observe(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. ``path`` is the route's template."""
        key = (method, path, status)
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(BUCKETS) + 1)
            self._seconds[key] = 0.0
        counts[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[key] += seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram."""
        family = HistogramMetricFamily(
            "agl_store_request_seconds",
            "Requests by route and status, and their time",
            labels=("method", "route", "status"),
        )
        for (method, path, status), counts in sorted(self._counts.items()):
            total, buckets = 0, list[tuple[str, float]]()
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric(
                (method, path, str(status)), buckets, sum_value=self._seconds[method, path, status]
            )
        yield family


class ServerMetrics:
    """What /metrics shows.

    Args:
        polls: the waiting long polls.
    """

    def __init__(self, times: RequestTimes, polls: Sized) -> None:
        self._polls = polls
        self._registry = CollectorRegistry()
        self._registry.register(times)
        ProcessCollector(registry=self._registry)

    def text(self, statistics: Mapping[str, Any], health: Mapping[str, Any], location: str) -> bytes:
        """Return all metrics, with the store's counts of now."""
        counts = CollectorRegistry()
        counts.register(_StoreCounts(statistics, health, location, len(self._polls)))
        return generate_latest(self._registry) + generate_latest(counts)


class _StoreCounts(Collector):
    def __init__(
        self, statistics: Mapping[str, Any], health: Mapping[str, Any], location: str, num_polls: int
    ) -> None:
        self._statistics = statistics
        self._health = health
        self._location = location
        self._num_polls = num_polls

    def collect(self) -> Iterator[Metric]:
        for name, value in self._statistics.items():
            if isinstance(value, Mapping):
                family = GaugeMetricFamily(
                    f"agl_store_{name}", f"{name.capitalize()} by status", labels=("status",)
                )
                for status, count in value.items():  # pyright: ignore[reportUnknownVariableType]
                    family.add_metric((str(status),), float(count))  # pyright: ignore[reportUnknownArgumentType]
                yield family
            elif isinstance(value, int | float):
                yield GaugeMetricFamily(f"agl_store_{name}", f"{name.capitalize()} in the store", value=value)
        yield GaugeMetricFamily("agl_store_long_polls", "Clients that wait", value=self._num_polls)
        described = {"identity": self._health["identity"], "schema_version": self._health["schema_version"]}
        yield InfoMetricFamily(
            "agl_store",
            "Which store this is",
            value={name: str(value) for name, value in {**described, "location": self._location}.items()},
        )
