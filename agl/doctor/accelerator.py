"""torch and the GPU, looked at in a process of their own: a broken driver may end or hang whoever asks it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from agl.doctor.findings import Finding, failure, fine, warning

GIB = 2**30
LITTLE_MEMORY = 8 * GIB
DRIVER = Path("/proc/driver/nvidia/version")
PROBE = """
import json, torch
seen = torch.cuda.is_available()
devices = []
for index in range(torch.cuda.device_count() if seen else 0):
    about = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    devices.append({"name": about.name, "total": total, "free": free})
if seen:
    (torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")).sum().item()
print(json.dumps({
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "seen": seen,
    "bf16": bool(seen and torch.cuda.is_bf16_supported()),
    "devices": devices,
    "sum": torch.ones(64, 64).matmul(torch.ones(64, 64)).sum().item(),
}))
"""


def accelerator(
    seconds: float,
    *,
    is_installed: bool | None = None,
    command: Sequence[str] = (sys.executable, "-c", PROBE),
    driver: Path = DRIVER,
) -> list[Finding]:
    """Look at torch and the GPUs that it sees.

    Args:
        seconds: the longest wait for torch.
        is_installed: None looks.
        command: prints what torch says.
        driver: a file that is there where NVIDIA's driver is.
    """
    if not (find_spec("torch") is not None if is_installed is None else is_installed):
        detail = 'not installed: prompts can be searched, weights neither trained nor served; pip install "agl[torch]"'
        return [fine("torch", detail)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        fix = (
            "see what holds it (a network disk, a GPU's driver: nvidia-smi), or give it longer with --timeout"
        )
        return [failure("torch", f"not imported within {seconds:g} s", fix)]
    if done.returncode:
        reason = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.returncode}")
        fix = 'install it anew: pip install --force-reinstall "torch>=2.6" (GPU: nvidia-smi must work first)'
        return [failure("torch", f"it cannot be used: {reason}", fix)]
    return findings_from(json.loads(done.stdout.splitlines()[-1]), has_driver=driver.exists())


def findings_from(seen: dict[str, Any], *, has_driver: bool) -> list[Finding]:
    """Return the findings for what torch said of itself."""
    built = f"built for CUDA {seen['cuda']}" if seen["cuda"] else "built for the CPU"
    found = [fine("torch", f"{seen['version']}, {built}")]
    if not seen["seen"]:
        if has_driver:
            fix = "pip install torch for the driver's CUDA (nvidia-smi says which), and see CUDA_VISIBLE_DEVICES"
            return [*found, warning("gpu", "there is an NVIDIA driver, and torch sees no GPU", fix)]
        return [*found, fine("gpu", "none: the CPU trains policies of some million parameters")]
    for index, device in enumerate(cast("list[dict[str, Any]]", seen["devices"])):
        free, total = device["free"], device["total"]
        words = (
            f"{index}: {device['name']}, {free / GIB:.1f} of {total / GIB:.1f} GiB free,"
            f" {'bfloat16' if seen['bf16'] else 'no bfloat16'}"
        )
        if free < LITTLE_MEMORY:
            fix = "end what else uses it (nvidia-smi), or train with policy=lora or a smaller policy"
            found.append(warning("gpu", words, fix))
        elif not seen["bf16"]:
            found.append(warning("gpu", words, "set policy.dtype=float16 and learner.mixed_precision=off"))
        else:
            found.append(fine("gpu", words))
    return found
