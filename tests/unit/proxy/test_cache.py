import pytest

from agl.errors import ConfigError
from agl.proxy.cache import ResponseCache, check_mode
from agl.proxy.replays import request_hash
from agl.types import Page, Span
from agl.types import attributes as key

GREEDY = {"model": "m", "messages": [], "temperature": 0}
SAMPLED = {"model": "m", "messages": [], "temperature": 1.0}
SEEDED = SAMPLED | {"seed": 5}
SPAN = Span(span_id="1" * 16, trace_id="2" * 32, name="chat m", start_time_ns=1)


class Spans:
    def __init__(self, **by_key):
        self.by_key = by_key

    async def query_spans(self, query):
        assert query.limit == 1
        ((name, value),) = query.attributes.items()
        assert name == key.CACHE_KEY
        return Page[Span](items=[self.by_key[value]] if value in self.by_key else [])


def key_of(mode, request, **values):
    plain = {"policy_version": None, "run_id": "demo", "with_logprobs": False}
    return ResponseCache(Spans(), mode).key_of(request, **{**plain, **values})


@pytest.mark.parametrize("mode", ["read_write", "", "on"])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(ConfigError, match=r"proxy\.cache.*repeatable, all"):
        check_mode(mode)


@pytest.mark.parametrize(
    ("mode", "kept"), [(None, []), ("repeatable", [GREEDY, SEEDED]), ("all", [GREEDY, SEEDED, SAMPLED])]
)
def test_the_mode_says_which_answers_are_kept(mode, kept):
    assert [request for request in (GREEDY, SEEDED, SAMPLED) if key_of(mode, request)] == kept
    check_mode(mode)


def test_a_seed_and_the_sampling_are_part_of_the_key():
    assert key_of("all", GREEDY) == request_hash(GREEDY)
    assert len({key_of("all", request) for request in (GREEDY, SEEDED, SAMPLED)}) == 3


def test_trained_weights_are_a_runs_own_and_those_before_training_everybodys():
    first = [key_of("all", GREEDY, policy_version=0, run_id=run) for run in ("demo", "other")]
    later = [key_of("all", GREEDY, policy_version=4, run_id=run) for run in ("demo", "other")]
    assert first[0] == first[1]
    assert len({*first, *later}) == 3


def test_an_answer_whose_logprobs_the_client_wants_to_see_is_not_kept():
    assert key_of("all", GREEDY, with_logprobs=True) is None


async def test_an_answer_is_found_by_its_key():
    cache = ResponseCache(Spans(known=SPAN), "all")
    assert await cache.find("known") == SPAN
    assert await cache.find("other") is None
