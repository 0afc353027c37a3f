"""Roles: what a script that is started on several machines does on this one, as the environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from agl.errors import ConfigError

Role = Literal["algorithm", "runner", "both"]
ROLE, STORE_URL, STORE_TOKEN = "AGL_CURRENT_ROLE", "AGL_STORE_URL", "AGL_STORE_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """This process's part in a run.

    Args:
        role: ``algorithm`` learns and runs no agent; ``runner`` runs agents for it; ``both`` does all.
        store_url: the store where they meet; None where the role's own store is meant.
        store_token: its token.
    """

    role: Role = "both"
    store_url: str | None = None
    store_token: str | None = field(default=None, repr=False)


def part_from(environment: Mapping[str, str] | None = None) -> Part:
    """Return the part that ``AGL_CURRENT_ROLE``, ``AGL_STORE_URL`` and ``AGL_STORE_TOKEN`` give this process.

    ``environment`` is the process's own where none is given.

    Without a role the other two say nothing here: programs that agents start have them in their environment.

    Raises:
        ConfigError: no such role.
    """
    environment = os.environ if environment is None else environment
    role = environment.get(ROLE)
    if not role:
        return Part()
    if role not in get_args(Role):
        raise ConfigError(f"{ROLE}={role}: one of {', '.join(get_args(Role))}")
    return Part(
        role=cast("Role", role),
        store_url=environment.get(STORE_URL) or None,
        store_token=environment.get(STORE_TOKEN) or None,
    )
