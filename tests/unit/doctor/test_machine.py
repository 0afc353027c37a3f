"""The machine: each limit where it turns from ok to warn to fail."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from agl.doctor import machine
from agl.doctor.findings import Finding

GIB = 2**30


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_a_python_that_is_too_old_fails() -> None:
    finding = only(machine.python((3, 10, 4)))
    assert finding.status == "fail"
    assert finding.detail.startswith("3.10.4 ")
    assert only(machine.python((3, 11, 0))).status != "fail"


def test_the_system_and_the_cores_are_named() -> None:
    assert only(machine.system()).detail.startswith(os.uname().sysname)
    assert " cores, load " in only(machine.processors()).detail


@pytest.mark.parametrize(("free_kib", "status"), [(8 * GIB // 1024, "ok"), (GIB // 1024, "warn")])
def test_little_free_memory_is_a_warning(tmp_path: Path, free_kib: int, status: str) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {free_kib} kB\nHugePages_Total: 0\n")
    finding = only(machine.memory(meminfo, tmp_path))
    assert finding.status == status
    assert finding.detail.startswith("16.0 GiB, ")


def test_a_containers_limit_is_what_counts(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {60 * GIB // 1024} kB\n")
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    finding = only(machine.memory(meminfo, tmp_path))
    assert finding.status == "warn"
    assert finding.detail == "4.0 GiB (a container's limit), 1.0 free"


def test_a_system_without_such_a_file_is_asked_otherwise(tmp_path: Path) -> None:
    assert " GiB" in only(machine.memory(tmp_path / "none", tmp_path)).detail


@pytest.mark.parametrize(("free", "status"), [(50 * GIB, "ok"), (GIB, "warn"), (GIB // 10, "fail")])
def test_a_full_disk_is_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: str
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
    assert only(machine.disk(tmp_path / "runs" / "later", mounts)).status == status


def test_a_network_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=50 * GIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\nbroken\n")
    finding = only(machine.disk(tmp_path / "runs", mounts))
    assert finding.status == "warn"
    assert finding.detail.endswith("on a network disk (nfs4)")


def test_a_file_in_the_way_of_the_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("x")
    assert only(machine.disk(tmp_path / "runs")).detail.endswith("/runs cannot be written")


def test_a_clock_that_was_never_set_fails() -> None:
    assert only(machine.clock(0.0)) == Finding(
        status="fail",
        what="clock",
        detail="1970-01-01 00:00:00 UTC is in the past",
        fix="set the clock (timedatectl set-ntp true)",
    )
    assert only(machine.clock(1_800_000_000.0)).detail == "2027-01-15 08:00:00 UTC"


class Port:
    """Stands in for a socket where port 4747 is taken."""

    taken: frozenset[int] = frozenset({4747})

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Port:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def setsockopt(self, *_: object) -> None:
        pass

    def bind(self, address: tuple[str, int]) -> None:
        if address[1] in self.taken:
            raise OSError(98, "Address already in use")

    def listen(self) -> None:
        pass


class NoPort(Port):
    taken = frozenset({0, 4747})


def test_a_taken_port_is_named_with_who_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", Port)
    finding = only(machine.ports())
    assert finding.status == "warn"
    assert finding.detail == "127.0.0.1 can be listened on; taken: 4747 (agl store)"
    assert only(machine.ports([4748])).detail == "127.0.0.1 can be listened on; 4748 are free"


def test_no_port_at_all_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", NoPort)
    assert only(machine.ports()).detail == "127.0.0.1 cannot be listened on: Address already in use"


@pytest.mark.parametrize(
    ("limits", "status"),
    [((1024, 4096), "ok"), ((256, 1024), "warn"), ((256, resource.RLIM_INFINITY), "ok")],
)
def test_few_open_files_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], status: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    assert only(machine.open_files()).status == status
