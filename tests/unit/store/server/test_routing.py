from __future__ import annotations

from typing import Literal

from agl.store.server.operation import Call, Operation
from agl.store.server.routing import RouteTable


async def run(call: Call) -> object:
    return call


def operation(method: Literal["GET", "POST", "PATCH"], path: str) -> Operation:
    return Operation(method=method, path=path, run=run, summary="", answers=None)


LIST, ADD = operation("GET", "/v1/rollouts"), operation("POST", "/v1/rollouts")
DEQUEUE = operation("POST", "/v1/rollouts/dequeue")
ONE = operation("GET", "/v1/rollouts/{rollout_id}")
LATEST = operation("GET", "/v1/rollouts/{rollout_id}/attempts/latest")
REPORT = operation("PATCH", "/v1/rollouts/{rollout_id}/attempts/{attempt_id}")
TABLE = RouteTable([ONE, REPORT, LATEST, LIST, ADD, DEQUEUE])


def test_a_path_leads_to_its_verbs_and_parameters() -> None:
    assert TABLE.find("/v1/rollouts") == ({"GET": LIST, "POST": ADD}, ())
    assert TABLE.find("/v1/rollouts/ro-1") == ({"GET": ONE}, ("ro-1",))
    assert TABLE.find("/v1/rollouts/ro-1/attempts/at-1") == ({"PATCH": REPORT}, ("ro-1", "at-1"))


def test_a_name_wins_over_a_parameter() -> None:
    assert TABLE.find("/v1/rollouts/dequeue") == ({"POST": DEQUEUE}, ())
    assert TABLE.find("/v1/rollouts/ro-1/attempts/latest") == ({"GET": LATEST}, ("ro-1",))


def test_other_paths_lead_nowhere() -> None:
    for path in (
        "",
        "/",
        "/v1",
        "/v1/rollouts/",
        "/v1/rollouts//attempts/x",
        "/v1/rollouts/a/b",
        "//v1/rollouts",
    ):
        assert TABLE.find(path) is None, path
