"""Frames between a runner and an isolated process."""

import asyncio
import decimal
import io
import os
import sys
import threading
import types

import pytest

from agl.agents.frames import FrameWriter, UnknownClassError, framed, loaded_value, next_frame, read_frame


def test_frames_come_out_as_they_went_in_and_then_there_are_no_more() -> None:
    file = io.BytesIO(framed({"a": 1}) + framed("b" * 100_000))
    assert [read_frame(file), read_frame(file)] == [{"a": 1}, "b" * 100_000]
    with pytest.raises(EOFError):
        read_frame(file)
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(framed("cut off")[:-1]))


async def test_a_frame_larger_than_the_pipe_and_frames_of_many_threads_arrive_whole() -> None:
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    writer = FrameWriter(writing)
    values = [str(number) * 50_000 for number in range(8)]
    threads = [threading.Thread(target=writer.write, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    got = [loaded_value(await next_frame(reader)) for _ in values]
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(values)
    os.close(writing)
    with pytest.raises(EOFError):
        await next_frame(reader)
    transport.close()


def test_what_comes_back_imports_nothing(monkeypatch) -> None:
    assert loaded_value(framed(decimal.Decimal(1))[4:]) == 1
    module = types.ModuleType("only_in_the_process")
    module.Strange = type("Strange", (), {"__module__": "only_in_the_process"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_in_the_process", module)
    data = framed(module.Strange())[4:]
    monkeypatch.delitem(sys.modules, "only_in_the_process")
    with pytest.raises(UnknownClassError, match=r"only_in_the_process\.Strange"):
        loaded_value(data)
