"""A server at the other end of connections in memory."""

from __future__ import annotations

import pytest
from scripted_store import ScriptedStore


@pytest.fixture
def server() -> ScriptedStore:
    return ScriptedStore()
