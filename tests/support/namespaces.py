"""Two machines on one: network namespaces of the test's own, each with an address, and a link between them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

INTERFACE = "agl0"
ADDRESSES = ("192.0.2.1", "192.0.2.2")
"""Of the block that is meant for documentation (RFC 5737): in no network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A namespace.

    Args:
        name: of the namespace.
        address: the only one that the other machine reaches.
    """

    name: str
    address: str

    @property
    def agl(self) -> Sequence[str]:
        """The command line that starts ``agl`` on this machine."""
        return ("ip", "netns", "exec", self.name, sys.executable, "-m", "agl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Two machines."""

    near: Machine
    far: Machine

    def cut(self) -> None:
        """Take the link down: packets are lost without a word, connections live on."""
        _ip("-n", self.far.name, "link", "set", INTERFACE, "down")

    def mend(self) -> None:
        """Bring it up again."""
        _ip("-n", self.far.name, "link", "set", INTERFACE, "up")


@contextmanager
def two_machines() -> Iterator[Network]:
    """Make them; nothing is left of them behind the block. Fails the test where that is not possible."""
    if shutil.which("ip") is None:
        pytest.fail("this test makes network namespaces with `ip`: install the package iproute2")
    near, far = (
        Machine(name=f"agl-{os.getpid()}-{side}", address=address)
        for side, address in zip(("near", "far"), ADDRESSES, strict=True)
    )
    made: list[str] = []
    try:
        for machine in (near, far):
            _ip("netns", "add", machine.name)
            made.append(machine.name)
        peer = ("peer", "name", INTERFACE, "netns", far.name)
        _ip("-n", near.name, "link", "add", INTERFACE, "type", "veth", *peer)
        for machine in (near, far):
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip("-n", machine.name, "link", "set", interface, "up")
        yield Network(near=near, far=far)
    finally:
        for name in made:
            _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(
            f"this test makes network namespaces, which needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), and"
            f" `ip {' '.join(arguments)}` says: {done.stderr.strip()}"
        )
