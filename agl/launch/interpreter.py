"""The interpreter's settings for a process that serves: it seldom looks for garbage, and threads take turns soon."""

from __future__ import annotations

import gc
import sys

GARBAGE_OBJECTS = 50_000
"""New objects between two looks for garbage in circles, of which requests leave little. At Python's 700, looking takes
half the time of decoding 200 spans.
"""
SWITCH_SECONDS = 0.0005
"""How long a thread waits for the interpreter's lock before it asks for it: a tenth of Python's own. The event loop
holds it nearly always, and a store's writer lets go of it at each statement: the proxy then answers 1.3 times as many
calls (benchmarks/proxy.py).
"""


def tune_for_serving() -> None:
    """Set both, once all that stays has been loaded."""
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    sys.setswitchinterval(SWITCH_SECONDS)
