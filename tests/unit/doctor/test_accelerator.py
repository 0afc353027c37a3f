"""torch and the GPU: what it says in a process of its own becomes findings, whatever becomes of the process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agl.doctor.accelerator import accelerator, findings_from

GIB = 2**30
CPU: dict[str, Any] = {
    "version": "2.7.0",
    "cuda": None,
    "seen": False,
    "bf16": False,
    "devices": [],
    "sum": 1.0,
}


def gpu(*, free: int, bf16: bool = True) -> dict[str, Any]:
    device = {"name": "H200", "total": 140 * GIB, "free": free}
    return {**CPU, "cuda": "12.6", "seen": True, "bf16": bf16, "devices": [device]}


def test_a_machine_without_torch_is_well_and_told_what_it_lacks() -> None:
    (finding,) = accelerator(5.0, is_installed=False)
    assert finding.status == "ok"
    assert 'pip install "agl[torch]"' in finding.detail


def saying(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def test_what_torch_says_is_read_from_its_last_line() -> None:
    found = accelerator(
        30.0, is_installed=True, command=saying(f"print('noise'); print({json.dumps(json.dumps(CPU))})")
    )
    assert [finding.detail for finding in found] == [
        "2.7.0, built for the CPU",
        "none: the CPU trains policies of some million parameters",
    ]


def test_a_torch_that_breaks_fails_with_its_last_words() -> None:
    (finding,) = accelerator(
        30.0, is_installed=True, command=saying("raise ImportError('libcudart.so.12: no such file')")
    )
    assert finding.status == "fail"
    assert finding.detail == "it cannot be used: ImportError: libcudart.so.12: no such file"


def test_a_torch_that_ends_the_process_fails() -> None:
    (finding,) = accelerator(30.0, is_installed=True, command=saying("import os; os._exit(11)"))
    assert finding.detail == "it cannot be used: exit code 11"


def test_a_torch_that_hangs_fails_in_time() -> None:
    (finding,) = accelerator(
        0.05, is_installed=True, command=saying("import threading; threading.Event().wait()")
    )
    assert finding.status == "fail"
    assert finding.detail == "not imported within 0.05 s"


@pytest.mark.parametrize(
    ("seen", "has_driver", "status", "words"),
    [
        (CPU, False, "ok", "none: the CPU trains"),
        (CPU, True, "warn", "there is an NVIDIA driver, and torch sees no GPU"),
        (gpu(free=139 * GIB), True, "ok", "0: H200, 139.0 of 140.0 GiB free, bfloat16"),
        (gpu(free=2 * GIB), True, "warn", "0: H200, 2.0 of 140.0 GiB free, bfloat16"),
        (gpu(free=139 * GIB, bf16=False), True, "warn", "0: H200, 139.0 of 140.0 GiB free, no bfloat16"),
    ],
)
def test_the_gpu_is_told_with_what_to_do(
    seen: dict[str, Any], has_driver: bool, status: str, words: str
) -> None:
    _, finding = findings_from(seen, has_driver=has_driver)
    assert finding.status == status
    assert finding.detail.startswith(words)
    assert (finding.fix is None) == (status == "ok")


def test_the_driver_is_looked_for(tmp_path: Path) -> None:
    driver = tmp_path / "version"
    driver.write_text("NVRM")
    command = saying(f"print({json.dumps(json.dumps(CPU))})")
    found = accelerator(30.0, is_installed=True, command=command, driver=driver)
    assert found[1].status == "warn"
