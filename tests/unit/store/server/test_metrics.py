from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from agl.store.server.metrics import RequestTimes, ServerMetrics

STATISTICS = {"rollouts": {"pending": 3, "failed": 1}, "attempts": {"running": 2}, "spans": 7, "runs": 0}
HEALTH = {"identity": "abc", "schema_version": 2}


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode("utf-8"))
        for sample in family.samples
    }


def test_requests_are_counted_by_route_and_status() -> None:
    times = RequestTimes()
    times.observe("GET", "/v1/runs", 200, 0.003)
    times.observe("GET", "/v1/runs", 200, 0.02)
    times.observe("GET", "/v1/runs", 404, 60.0)

    found = samples(ServerMetrics(times, []).text({}, HEALTH, "memory"))

    ok = (("method", "GET"), ("route", "/v1/runs"), ("status", "200"))
    assert found["agl_store_request_seconds_count", ok] == 2
    assert round(found["agl_store_request_seconds_sum", ok], 6) == 0.023
    assert found["agl_store_request_seconds_bucket", (("le", "0.0025"), *ok)] == 0
    assert found["agl_store_request_seconds_bucket", (("le", "0.005"), *ok)] == 1
    assert found["agl_store_request_seconds_bucket", (("le", "0.025"), *ok)] == 2
    unknown = (*ok[:2], ("status", "404"))
    assert found["agl_store_request_seconds_bucket", (("le", "30.0"), *unknown)] == 0
    assert found["agl_store_request_seconds_bucket", (("le", "+Inf"), *unknown)] == 1


def test_the_stores_counts_are_shown() -> None:
    found = samples(ServerMetrics(RequestTimes(), [1, 2]).text(STATISTICS, HEALTH, "/data/store.sqlite"))

    assert found["agl_store_rollouts", (("status", "pending"),)] == 3
    assert found["agl_store_rollouts", (("status", "failed"),)] == 1
    assert found["agl_store_attempts", (("status", "running"),)] == 2
    assert found["agl_store_spans", ()] == 7
    assert found["agl_store_runs", ()] == 0
    assert found["agl_store_long_polls", ()] == 2
    named = (("identity", "abc"), ("location", "/data/store.sqlite"), ("schema_version", "2"))
    assert found["agl_store_info", named] == 1
    assert found["process_resident_memory_bytes", ()] > 0


def test_two_servers_in_one_process_count_for_themselves() -> None:
    first, second = RequestTimes(), RequestTimes()
    first.observe("GET", "/v1/health", 200, 0.001)

    assert b"/v1/health" in ServerMetrics(first, []).text({}, HEALTH, "memory")
    assert b"/v1/health" not in ServerMetrics(second, []).text({}, HEALTH, "memory")
