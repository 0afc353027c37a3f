"""The packages: agl's extras, versions that conflict, and combinations that are known to break."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from agl.doctor.findings import Finding, failure, fine, warning

OF_DEVELOPERS = ("test", "dev")
"""Extras that nobody needs to use agl."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A package as far as it matters here: its version, what it requires, and its extras."""

    version: str
    requires: Sequence[str] = ()
    extras: Sequence[str] = ()


Find = Callable[[str], Installed | None]
"""Takes a canonical name; returns the installed package."""


@dataclass(frozen=True, slots=True)
class KnownBreak:
    """Two versions that each package's own requirements allow, and that do not work together."""

    first: Requirement
    second: Requirement
    symptom: str
    fix: str


KNOWN_BREAKS = (
    KnownBreak(
        Requirement("openai<1.55.3"),
        Requirement("httpx>=0.28"),
        "its client cannot be made: unexpected keyword argument 'proxies'",
        'pip install -U "openai>=1.60"',
    ),
    KnownBreak(
        Requirement("anthropic<0.41"),
        Requirement("httpx>=0.28"),
        "its client cannot be made: unexpected keyword argument 'proxies'",
        "pip install -U anthropic",
    ),
    KnownBreak(
        Requirement("typer<0.15.4"),
        Requirement("click>=8.2"),
        "every --help fails: make_metavar() missing 1 required positional argument",
        "pip install -U typer",
    ),
    KnownBreak(
        Requirement("torch<2.3"),
        Requirement("numpy>=2"),
        "compiled for NumPy 1: arrays and tensors cannot be exchanged",
        'pip install -U "torch>=2.6"',
    ),
    KnownBreak(
        Requirement("peft<0.18"),
        Requirement("transformers>=5"),
        "it imports what transformers 5 no longer has",
        'pip install -U "peft>=0.18"',
    ),
)


def installed(name: str) -> Installed | None:
    """Return a package of this environment, None where it is not installed."""
    try:
        found = metadata.distribution(name)
        extras = found.metadata.get_all("Provides-Extra") or []
        return Installed(found.version, tuple(found.requires or ()), tuple(map(str, extras)))
    except metadata.PackageNotFoundError:
        return None


def packages(find: Find = installed) -> list[Finding]:
    """Look at agl, its extras, what they require, and known breaks."""
    own = find("agl")
    if own is None:
        fix = (
            "pip install agl (or pip install -e . in a checkout): extras and versions cannot be told without"
        )
        return [warning("packages", "agl is not installed as a package", fix)]
    closure = _Closure(find)
    there, partly, absent = _extras(own, find)
    closure.add("agl", there)
    words = f"agl {own.version}"
    if there:
        words += f" with {', '.join(there)}"
    if absent:
        words += f"; not installed: {', '.join(absent)}"
    found = [fine("packages", words)]
    for extra, missing in partly.items():
        detail = (
            f"of the extra {extra} {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        )
        found.append(warning("packages", detail, f'to use it: pip install "agl[{extra}]"'))
    conflicts = [
        failure("conflict", conflict.words, f'pip install -U "{conflict.wanted}"')
        for conflict in closure.conflicts
    ]
    return (
        found
        + (conflicts or [fine("conflicts", f"none among {len(closure.seen)} packages")])
        + known_breaks(find)
    )


def known_breaks(find: Find = installed) -> list[Finding]:
    """Look for combinations that no requirement forbids and that are known to break."""
    return [
        failure(
            "conflict",
            f"{known.first.name} {find(known.first.name).version} with {known.second.name}"  # pyright: ignore[reportOptionalMemberAccess] - it is there
            f" {find(known.second.name).version}: {known.symptom}",  # pyright: ignore[reportOptionalMemberAccess]
            known.fix,
        )
        for known in KNOWN_BREAKS
        if _is_met(known.first, find(known.first.name)) and _is_met(known.second, find(known.second.name))
    ]


def _is_met(requirement: Requirement, package: Installed | None) -> bool:
    if package is None:
        return False
    try:
        return requirement.specifier.contains(Version(package.version), prereleases=True)
    except InvalidVersion:
        return True


def _extras(own: Installed, find: Find) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Return the extras that are there, those that are there in part with what they lack, and those that are not."""
    there, partly, absent = list[str](), dict[str, list[str]](), list[str]()
    for extra in own.extras:
        if extra in OF_DEVELOPERS:
            continue
        names = [canonicalize_name(one.name) for one in _of_extra(own, extra)]
        missing: list[str] = [name for name in names if find(name) is None]
        if not missing:
            there.append(extra)
        elif len(missing) == len(names) or _is_there_for_others(own, extra, missing, find):
            absent.append(extra)
        else:
            partly[extra] = missing
    return there, partly, absent


def _is_there_for_others(own: Installed, extra: str, missing: Sequence[str], find: Find) -> bool:
    """Whether all that an extra has of its own is missing: what it shares with others is there for them."""
    names = _names(own, extra)
    others: set[str] = set()
    for other in own.extras:
        if other not in (extra, *OF_DEVELOPERS) and not names <= _names(
            own, other
        ):  # which does not include it
            others |= _names(own, other)
    return not any(find(name) is not None for name in names - others) and bool(missing)


def _names(own: Installed, extra: str) -> set[str]:
    return {canonicalize_name(one.name) for one in _of_extra(own, extra)}


def _of_extra(own: Installed, extra: str) -> Iterator[Requirement]:
    """The requirements that an extra adds, those of agl's own extras in it included."""
    plain = {str(one) for one in _requirements(own, ())}
    for requirement in _requirements(own, (extra,)):
        if str(requirement) in plain:
            continue
        if canonicalize_name(requirement.name) == "agl":
            for inner in sorted(requirement.extras):
                yield from _of_extra(own, inner)
        else:
            yield requirement


def _requirements(package: Installed, extras: Sequence[str]) -> Iterator[Requirement]:
    """What a package requires here, with these extras of it."""
    for text in package.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


@dataclass(frozen=True, slots=True)
class _Conflict:
    words: str
    wanted: str


@dataclass(slots=True)
class _Closure:
    """All that a package requires, and what of it is there in a version that is not wanted."""

    find: Find
    seen: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    conflicts: list[_Conflict] = field(default_factory=list[_Conflict])

    def add(self, name: str, extras: Sequence[str]) -> None:
        """Follow a package's requirements, and theirs."""
        package = self.find(name)
        new = set(extras) - self.seen.get(name, set())
        if package is None or (name in self.seen and not new):
            return
        self.seen.setdefault(name, set()).update(extras)
        for requirement in _requirements(package, extras):
            required = canonicalize_name(requirement.name)
            other, wanted = self.find(required), _plain(requirement)
            if other is not None and not _is_met(requirement, other):
                words = f"{requirement.name} {other.version} is installed, {name} needs {wanted}"
                self._tell(_Conflict(words, wanted))
            elif other is None and not _is_extra(requirement):
                self._tell(_Conflict(f"{name} needs {wanted}, which is not installed", wanted))
            self.add(required, sorted(requirement.extras))

    def _tell(self, conflict: _Conflict) -> None:
        if conflict not in self.conflicts:
            self.conflicts.append(conflict)


def _is_extra(requirement: Requirement) -> bool:
    return requirement.marker is not None and "extra" in str(requirement.marker)


def _plain(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"
