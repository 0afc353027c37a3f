"""What may be wrong before anything is run: the machine, the packages, the store, and one recipe's parts.

    checks = [Check("disk", lambda: disk(Path("runs"))), ...]
    findings = await diagnose(checks, on_finding=show)

Each check looks at one thing and returns findings, each ok, warn or fail, the last two with what to do. None prints.
"""

from agl.doctor.diagnosis import Check, diagnose
from agl.doctor.findings import Finding

__all__ = ["Check", "Finding", "diagnose"]
