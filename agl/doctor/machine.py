"""The machine: Python, system, processors, memory, disk, clock, ports, open files."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from agl.doctor.findings import Finding, failure, fine, warning

LEAST_PYTHON = (3, 11)
GIB = 2**30
LITTLE_DISK, NO_DISK = 5 * GIB, GIB // 4
"""A run with checkpoints of a small model takes some hundred MB, of a 1.5B one 20 GB."""
LITTLE_MEMORY = 2 * GIB
FEW_FILES = 4096
"""A runner with some hundred attempts has a few connections of each."""
NETWORK_DISKS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "lustre", "ceph", "beegfs")
PORTS = {4747: "agl store", 4748: "agl proxy"}
EPOCH = 1_735_689_600.0
"""2025-01-01: a clock before it was never set."""


def python(version: tuple[int, int, int] = sys.version_info[:3]) -> list[Finding]:
    """Look at the interpreter."""
    words = f"{'.'.join(map(str, version))} ({platform.python_implementation()}) at {sys.executable}"
    if version[:2] < LEAST_PYTHON:
        return [failure("python", words, "install Python 3.11 or newer and make the environment anew")]
    if sys.maxsize < 2**32:
        return [failure("python", f"{words} is a 32-bit one", "install a 64-bit Python")]
    if sys.prefix == sys.base_prefix:
        fix = "python3 -m venv .venv, and install agl there: packages of others change the system's"
        return [warning("python", f"{words}, outside of a virtual environment", fix)]
    return [fine("python", words)]


def system() -> list[Finding]:
    """Look at the operating system."""
    words = f"{platform.system()} {platform.release()} {platform.machine()}"
    if find_spec("fcntl") is None:
        fix = "run agl in WSL (Windows) or on Linux or macOS"
        return [failure("system", f"{words} has no file locks that the store needs", fix)]
    return [fine("system", words)]


def processors() -> list[Finding]:
    """Count the cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    words = f"{usable} of {os.cpu_count()} cores, load {load:.1f}"
    if load > 4 * usable:
        fix = "wait, or end what else runs here: agents' time limits are by the clock"
        return [warning("processors", words, fix)]
    return [fine("processors", words)]


def memory(meminfo: Path = Path("/proc/meminfo"), limits: Path = Path("/sys/fs/cgroup")) -> list[Finding]:
    """Look at the memory, and a container's limit of it."""
    total, free = _memory(meminfo)
    if total is None:
        return [fine("memory", "unknown on this system")]
    words = f"{total / GIB:.1f} GiB"
    with suppress(OSError, ValueError):
        limit = int((limits / "memory.max").read_text(encoding="ascii"))
        used = int((limits / "memory.current").read_text(encoding="ascii"))
        if limit < total:
            words, free = f"{limit / GIB:.1f} GiB (a container's limit)", min(free or limit, limit - used)
    if free is not None:
        words += f", {free / GIB:.1f} free"
        if free < LITTLE_MEMORY:
            fix = "end other programs, or train with a smaller policy or learner.micro_batch_tokens"
            return [warning("memory", words, fix)]
    return [fine("memory", words)]


def _memory(meminfo: Path) -> tuple[int | None, int | None]:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        amounts = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if " kB" in line}
        return amounts.get("MemTotal"), amounts.get("MemAvailable")
    except (OSError, ValueError):
        with suppress(OSError, ValueError, AttributeError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    return None, None


def disk(folder: Path, mounts: Path = Path("/proc/mounts")) -> list[Finding]:
    """Look at the disk that a folder is on, or will be."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    where = f"{folder.absolute()}"
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        fix = f"allow writing in {there}, or choose another folder with --run-dir"
        return [failure("disk", f"{where} cannot be written", fix)]
    free = shutil.disk_usage(there).free
    words = f"{free / GIB:.1f} GiB free for {where}"
    if free < NO_DISK:
        return [failure("disk", words, "make room: records and checkpoints would not fit")]
    if free < LITTLE_DISK:
        return [warning("disk", words, "make room, or keep fewer checkpoints (algorithm.keep_checkpoints)")]
    kind = _file_system(there, mounts)
    if kind.startswith(NETWORK_DISKS):
        fix = "put runs on a local disk (--run-dir): locks of a network disk are slow and may fail"
        return [warning("disk", f"{words}, on a network disk ({kind})", fix)]
    return [fine("disk", words)]


def _file_system(folder: Path, mounts: Path) -> str:
    """The type of the file system that a folder is on, empty where that is not known."""
    try:
        fields = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):
        return ""
    found = [(field[1], field[2]) for field in fields if len(field) > 2 and folder.is_relative_to(field[1])]
    return max(found, key=lambda mount: len(mount[0]), default=("", ""))[1]


def clock(now: float | None = None) -> list[Finding]:
    """Look whether the clock was ever set."""
    now = time.time() if now is None else now
    words = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EPOCH:
        return [failure("clock", f"{words} is in the past", "set the clock (timedatectl set-ntp true)")]
    return [fine("clock", words)]


def ports(known: Sequence[int] = tuple(PORTS)) -> list[Finding]:
    """Look whether this machine's own address can be listened on, and the usual ports are free."""
    try:
        _bind(0)
    except OSError as error:
        fix = "allow this user to listen on 127.0.0.1 (a sandbox or firewall forbids it)"
        return [failure("ports", f"127.0.0.1 cannot be listened on: {error.strerror or error}", fix)]
    taken: list[int] = []
    for port in known:
        try:
            _bind(port)
        except OSError:
            taken.append(port)
    words = "127.0.0.1 can be listened on"
    if taken:
        names = ", ".join(f"{port} ({PORTS.get(port, 'of agl')})" for port in taken)
        fix = "it may be agl's own; else start with --port 0, which takes a free one"
        return [warning("ports", f"{words}; taken: {names}", fix)]
    return [fine("ports", f"{words}; {', '.join(map(str, known))} are free")]


def _bind(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()


def open_files() -> list[Finding]:
    """Look how many files and connections a process may have open."""
    if find_spec("resource") is None:
        return [fine("open files", "no limit known on this system")]
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    words = f"{soft} at once, {'no limit' if unlimited else hard} on demand"
    if not unlimited and hard < FEW_FILES:
        return [
            warning(
                "open files", words, f"raise the limit: ulimit -n {FEW_FILES} (or as root its hard limit)"
            )
        ]
    return [fine("open files", words)]
