from prometheus_client.parser import text_string_to_metric_families

from agl.proxy.accounts import CountedCall
from agl.proxy.call_metrics import CallMetrics


def call(**values):
    return CountedCall(**{"agent": None, "model": "m", "end": "ok", **values})


def samples(metrics):
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_calls_tokens_and_cost_are_counted_by_model_and_agent():
    metrics = CallMetrics(lambda: 3)
    metrics.add(call(agent="writer", input_tokens=10, output_tokens=2, cached_tokens=4, cost_usd=0.5))
    metrics.add(call(agent="writer", input_tokens=1, end="failed", is_unpriced=True))
    metrics.add(call(agent="writer", end="refused"))
    metrics.add(call(agent="writer", replayed=True, cost_usd=0.0))
    found = samples(metrics)
    whose = (("agent", "writer"), ("model", "m"))
    for end in ("ok", "failed", "refused", "replayed"):
        assert found["agl_proxy_calls_total", whose[0], ("end", end), whose[1]] == 1
    for kind, count in (("input", 11), ("output", 2), ("cached", 4)):
        assert found["agl_proxy_tokens_total", whose[0], ("kind", kind), whose[1]] == count
    assert found["agl_proxy_cost_usd_total", *whose] == 0.5
    assert found["agl_proxy_calls_without_price_total", *whose] == 1
    assert found["agl_proxy_call_seconds_count", *whose] == 2
    assert found[("agl_proxy_calls_under_way",)] == 3
    assert any(name[0] == "process_resident_memory_bytes" for name in found)


def test_times_are_histograms():
    metrics = CallMetrics(lambda: 0)
    metrics.add(call(latency_seconds=0.05, first_chunk_seconds=0.003))
    metrics.add(call(latency_seconds=1000.0))
    found = samples(metrics)
    whose = (("agent", ""), ("model", "m"))

    def below(name, bound):
        return found[name + "_bucket", whose[0], ("le", bound), whose[1]]

    assert [below("agl_proxy_call_seconds", bound) for bound in ("0.025", "0.05", "600.0", "+Inf")] == [
        0,
        1,
        1,
        2,
    ]
    assert found["agl_proxy_call_seconds_sum", *whose] == 1000.05
    assert below("agl_proxy_first_chunk_seconds", "0.005") == 1
    assert found["agl_proxy_first_chunk_seconds_count", *whose] == 1


def test_names_that_clients_make_up_do_not_fill_the_memory():
    metrics = CallMetrics(lambda: 0)
    for number in range(1000):
        metrics.add(call(model=f"model-{number}"))
    found = samples(metrics)
    counted = [value for name, value in found.items() if name[0] == "agl_proxy_calls_total"]
    assert len(counted) == 257
    assert sum(counted) == 1000
