"""Every error agl raises on purpose, by what the caller can do about it.

* AglError                    catch this to catch everything below
  x ConfigError               fix the recipe or the override             (exit 2)
  x MissingExtraError         pip install "agl[...]"                     (exit 2)
  x StoreError
    + NotFoundError           the id is wrong                            (HTTP 404)
    + ConflictError           someone else moved it first; re-read       (HTTP 409)
    + InvalidRequestError     the value can never be accepted            (HTTP 422)
    + StoreUnavailableError   retry later; the client already tried      (HTTP 503)
      - StoreChangedError     another store answers there now; start anew on it
    + AccessDeniedError       another token, or a store that may be written  (HTTP 401, 403)
  x AgentError                the user's agent raised: recorded on the attempt, never fatal
  x InferenceError            the engine or an upstream refused or failed a call; carries the HTTP status
  x RunStoppedError           the run cannot go on (preflight, too many bad rollouts): the message says why
  x CheckpointError           no usable checkpoint where one was asked for
"""

from __future__ import annotations

import re
from importlib.util import find_spec

_EXTRA = re.compile(r"""([\w-]+).*;.*extra == ['"]([\w-]+)['"]""")


class AglError(Exception):
    """Base of all errors agl raises on purpose."""

    exit_code = 1


class ConfigError(AglError, ValueError):
    """A recipe, a config group or an override is wrong; the message says which key."""

    exit_code = 2


class MissingExtraError(AglError, ImportError):
    """An optional dependency is not installed."""

    exit_code = 2

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f'{feature} needs the "{extra}" extra: pip install "agl[{extra}]"')


class StoreError(AglError):
    """A store refused or failed an operation."""


class NotFoundError(StoreError, LookupError):
    """No rollout, attempt, resource, worker or run has that id."""


class ConflictError(StoreError):
    """The change is not legal from the current status."""


class InvalidRequestError(StoreError, ValueError):
    """The value can never be accepted, whatever the state of the store (NaN reward, empty id, foreign span)."""


class StoreUnavailableError(StoreError, ConnectionError):
    """The store did not answer after the client's own retries, or is closed."""


class StoreChangedError(StoreUnavailableError):
    """Another store answers under the URL than the one this process works with: waiting does not help."""


class AccessDeniedError(StoreError, PermissionError):
    """The token is missing, wrong or too narrow, or the store is read-only; the message says which."""


class AgentError(AglError):
    """The agent raised; the traceback is on the attempt."""


class InferenceError(AglError):
    """An engine or an upstream server refused or failed a call.

    Args:
        message: what went wrong, for the agent's eyes.
        status: the HTTP status the agent sees (400 the request is wrong, 502 the upstream failed, ...).
        body: the upstream's own error body, handed on unchanged when there is one.
    """

    def __init__(self, message: str, *, status: int = 502, body: object = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class RunStoppedError(AglError):
    """The run cannot go on; the message names the first cause and what to do."""


class CheckpointError(AglError):
    """No usable checkpoint where one was asked for."""

    exit_code = 2


def require_extra(feature: str, extra: str, *modules: str) -> None:
    """Check, without importing them, that an extra's modules are installed.

    Raises:
        MissingExtraError: one is not.
    """
    if any(find_spec(module) is None for module in modules):
        raise MissingExtraError(feature, extra)


def extra_with(module: str) -> str | None:
    """Return the smallest of agl's own extras that installs a module's package, None when none does."""
    from importlib import metadata

    package = module.partition(".")[0].replace("_", "-").lower()
    try:
        requirements = metadata.requires("agl") or []
    except metadata.PackageNotFoundError:
        return None
    extras: dict[str, set[str]] = {}
    for found in filter(None, map(_EXTRA.match, requirements)):
        extras.setdefault(found.group(2), set()).add(found.group(1).lower())
    return min(
        (extra for extra in extras if package in extras[extra]), key=lambda e: len(extras[e]), default=None
    )
