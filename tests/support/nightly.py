"""Which form of the long tests runs: few moments and a minute at each change, all of them with ``AGL_NIGHTLY=1``."""

from __future__ import annotations

import os

NIGHTLY = os.environ.get("AGL_NIGHTLY", "") not in ("", "0")
