"""The packages: extras that are there, in part there and not there; conflicts; known breaks."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from agl.doctor.packages import KNOWN_BREAKS, Find, Installed, installed, known_breaks, packages

AGL = Installed(
    "1.0",
    (
        "httpx>=0.27",
        'torch>=2.6; extra == "torch"',
        'numpy>=1.26; extra == "torch"',
        'agl[torch]; extra == "lora"',
        'peft>=0.18; extra == "lora"',
        'openai>=1.60; extra == "openai"',
        'uvloop; sys_platform == "win32"',
        'pytest; extra == "test"',
    ),
    ("torch", "lora", "openai", "test"),
)


def environment(**versions: str) -> Find:
    """These packages, and agl."""
    there = {"agl": AGL, **{name: Installed(version) for name, version in versions.items()}}
    return there.get


def told(find: Find) -> list[tuple[str, str, str | None]]:
    return [(finding.status, finding.detail, finding.fix) for finding in packages(find)]


def test_extras_that_are_there_and_those_that_are_not_are_named() -> None:
    found = told(environment(httpx="0.28", torch="2.7", numpy="2.0", openai="1.70"))
    assert found == [
        ("ok", "agl 1.0 with torch, openai; not installed: lora", None),
        ("ok", "none among 5 packages", None),
    ]


def test_an_extra_that_is_there_in_part_is_a_warning_with_its_line() -> None:
    found = told(environment(httpx="0.28", torch="2.7"))
    assert found[1] == (
        "warn",
        "of the extra torch numpy is not installed",
        'to use it: pip install "agl[torch]"',
    )


def test_what_an_extra_of_another_has_is_not_its_own() -> None:
    assert told(environment(httpx="0.28", torch="2.7", numpy="2.0"))[0][1] == (
        "agl 1.0 with torch; not installed: lora, openai"
    )


def test_a_version_that_is_not_wanted_is_a_conflict_with_the_line_that_mends_it() -> None:
    found = told(environment(httpx="0.20", openai="1.0"))
    assert ("fail", "httpx 0.20 is installed, agl needs httpx>=0.27", 'pip install -U "httpx>=0.27"') in found
    assert (
        "fail",
        "openai 1.0 is installed, agl needs openai>=1.60",
        'pip install -U "openai>=1.60"',
    ) in found


def test_conflicts_among_what_is_required_are_found_too() -> None:
    there = {
        "agl": Installed("1.0", ("a[more]",)),
        "a": Installed("1", ("b<2", 'c>=3; extra == "more"', 'd; extra == "other"', "not a requirement!")),
        "b": Installed("2.1", ("a",)),
        "c": Installed("not.a.version"),
    }
    found = told(there.get)
    assert found[1:] == [("fail", "b 2.1 is installed, a needs b<2", 'pip install -U "b<2"')]


def test_what_is_required_and_not_there_is_a_conflict() -> None:
    assert (
        "fail",
        "agl needs httpx>=0.27, which is not installed",
        'pip install -U "httpx>=0.27"',
    ) in told(environment())


def test_agl_that_is_no_package_is_a_warning() -> None:
    assert [finding.status for finding in packages(lambda _: None)] == ["warn"]


def test_known_breaks_are_found_where_both_are_there() -> None:
    there = {"openai": Installed("1.50.0"), "httpx": Installed("0.28.1")}
    (finding,) = known_breaks(there.get)
    assert finding.detail == (
        "openai 1.50.0 with httpx 0.28.1: its client cannot be made: unexpected keyword argument 'proxies'"
    )
    assert known_breaks({"openai": Installed("1.60.0"), "httpx": Installed("0.28.1")}.get) == []
    assert known_breaks({"openai": Installed("1.50.0"), "httpx": Installed("0.27.0")}.get) == []


@pytest.mark.parametrize("known", KNOWN_BREAKS, ids=lambda known: known.first.name)
def test_what_mends_a_known_break_does_not_bring_it_back(known: object) -> None:
    fix = known.fix  # type: ignore[attr-defined]
    wanted = Requirement(fix.removeprefix("pip install -U ").strip('"'))
    assert wanted.name == known.first.name  # type: ignore[attr-defined]
    assert all(spec.operator == ">=" for spec in wanted.specifier)
    assert not any(known.first.specifier.contains(spec.version) for spec in wanted.specifier)  # type: ignore[attr-defined]


def test_packages_of_this_environment_are_found() -> None:
    found = installed("packaging")
    assert found is not None
    assert found.version
    assert installed("no-such-package-anywhere") is None
