"""Carry out checks side by side, each within its time; one that crashes or hangs is a finding itself."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agl.agents.threads import in_thread
from agl.doctor.findings import Finding, failure
from agl.errors import AglError, MissingExtraError


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check.

    Args:
        name: what it looks at; of its findings where it cannot say itself.
        look: returns the findings; a sync function has a thread of its own.
        seconds: its longest time.
        fix: what to do where it fails with an error of agl's, whose message says what is wrong.
    """

    name: str
    look: Callable[[], list[Finding]] | Callable[[], Awaitable[list[Finding]]]
    seconds: float = 20.0
    fix: str = "change what the message names"


async def diagnose(
    checks: Sequence[Check], *, on_finding: Callable[[Finding], None] = lambda _finding: None
) -> list[Finding]:
    """Carry out all checks at once; return their findings in the order of the checks.

    What the user's own code prints meanwhile is kept off standard output. What two checks fail with alike is said once.

    Args:
        checks: to carry out.
        on_finding: hears each finding as soon as those before it are there.
    """
    found: list[Finding] = []
    tasks = [asyncio.create_task(_findings_of(check)) for check in checks]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            for task in tasks:
                for finding in await task:
                    if finding.status == "ok" or finding.detail not in {earlier.detail for earlier in found}:
                        found.append(finding)
                        on_finding(finding)
    finally:
        for task in tasks:
            task.cancel()
    return found


async def _findings_of(check: Check) -> list[Finding]:
    try:
        async with asyncio.timeout(check.seconds):
            if inspect.iscoroutinefunction(check.look):
                return await check.look()
            found = await in_thread(check.look, name=f"agl doctor {check.name}")
            return await found if inspect.isawaitable(found) else found
    except TimeoutError:
        return [
            failure(
                check.name,
                f"{check.name} gave no answer within {check.seconds:g} s",
                "see what it waits for (a network disk, a model hub, a server), or give it longer with --timeout",
            )
        ]
    except MissingExtraError as error:
        message, _, command = str(error).partition(": ")
        return [failure(check.name, message, command or check.fix)]
    except AglError as error:
        return [failure(check.name, " ".join(str(error).split()), check.fix)]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the check's end, reported
        reason = next(iter(str(error).strip().splitlines()), "")
        return [
            failure(
                check.name,
                f"it broke: {type(error).__name__}: {reason}",
                "if this is not your own code's, report it with this line",
            )
        ]
