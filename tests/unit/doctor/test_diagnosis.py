"""Checks side by side: in order, in time, and never a traceback."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from agl.doctor.diagnosis import Check, diagnose
from agl.doctor.findings import Finding, failure, fine
from agl.errors import ConfigError, MissingExtraError


def saying(words: str) -> list[Finding]:
    return [fine("thing", words)]


async def test_findings_come_in_the_order_of_the_checks_whoever_ends_first() -> None:
    first_may_end = asyncio.Event()

    async def slow() -> list[Finding]:
        await first_may_end.wait()
        return saying("one")

    async def quick() -> list[Finding]:
        first_may_end.set()
        return saying("two")

    heard: list[Finding] = []
    checks = [
        Check(name="a", look=slow),
        Check(name="b", look=quick),
        Check(name="c", look=lambda: saying("3")),
    ]
    found = await diagnose(checks, on_finding=heard.append)
    assert [finding.detail for finding in found] == ["one", "two", "3"]
    assert heard == found


async def test_a_function_that_answers_with_a_coroutine_is_awaited() -> None:
    async def look() -> list[Finding]:
        return saying("later")

    assert (await diagnose([Check(name="a", look=lambda: look())]))[0].detail == "later"


def raising(error: BaseException) -> list[Finding]:
    raise error


@pytest.mark.parametrize(
    ("error", "detail", "fix"),
    [
        (ConfigError("data.train is x,\n  no such file"), "data.train is x, no such file", "do it"),
        (MissingExtraError("It", "torch"), 'It needs the "torch" extra', 'pip install "agl[torch]"'),
        (
            ZeroDivisionError("division by zero"),
            "it broke: ZeroDivisionError: division by zero",
            "if this is not your own code's, report it with this line",
        ),
        (
            RuntimeError(),
            "it broke: RuntimeError: ",
            "if this is not your own code's, report it with this line",
        ),
        (
            SystemExit(3),
            "it broke: SystemExit: 3",
            "if this is not your own code's, report it with this line",
        ),
    ],
)
async def test_a_check_that_raises_is_a_finding(error: BaseException, detail: str, fix: str) -> None:
    found = await diagnose([Check(name="data", look=lambda: raising(error), fix="do it")])
    assert found == [Finding(status="fail", what="data", detail=detail, fix=fix)]


async def test_a_check_that_hangs_is_a_finding_and_holds_up_nobody() -> None:
    async def forever() -> list[Finding]:
        await asyncio.Event().wait()
        return []

    released = threading.Event()

    def hangs() -> list[Finding]:
        released.wait()
        return []

    checks = [
        Check(name="a", look=forever, seconds=0.01),
        Check(name="b", look=hangs, seconds=0.01),
        Check(name="c", look=lambda: saying("fine")),
    ]
    try:
        found = await diagnose(checks)
    finally:
        released.set()
    assert [finding.status for finding in found] == ["fail", "fail", "ok"]
    assert found[0].detail == "a gave no answer within 0.01 s"


async def test_what_two_checks_fail_with_alike_is_said_once() -> None:
    def same() -> list[Finding]:
        raise ConfigError("no such file")

    found = await diagnose([Check(name="settings", look=same), Check(name="data", look=same)])
    assert [finding.what for finding in found] == ["settings"]


async def test_what_a_users_code_prints_stays_out_of_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    out = sys.stdout

    def loud() -> list[Finding]:
        sys.stdout.write("noise")
        return [failure("data", "x", "y")]

    await diagnose([Check(name="data", look=loud)], on_finding=lambda finding: out.write(finding.detail))
    assert capsys.readouterr().out == "x"
