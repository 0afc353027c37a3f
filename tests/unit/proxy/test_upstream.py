from agl.proxy.upstream import Upstream


async def test_an_engine_is_an_upstream_by_its_shape_alone(upstream):
    served: Upstream = upstream
    assert served.model == "policy"
    assert (await served.complete_chat({"messages": []}))["choices"]
    *_, last = [chunk async for chunk in served.stream_chat({"messages": []})]
    assert last["choices"] == []
