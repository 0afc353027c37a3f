"""Findings: a word of status, and what to do where something is not well."""

from __future__ import annotations

from agl.doctor.findings import Finding, failure, fine, warning


def test_only_what_is_not_well_has_something_to_do() -> None:
    assert fine("disk", "63 GiB") == Finding(status="ok", what="disk", detail="63 GiB", fix=None)
    assert warning("disk", "1 GiB", "make room").status == "warn"
    assert failure("disk", "0 GiB", "make room") == Finding(
        status="fail", what="disk", detail="0 GiB", fix="make room"
    )
