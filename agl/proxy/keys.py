"""Keys: who may call as which attempt.

An agent's key is made of the proxy's secret and its attempt's ids (``agl.types.tokens``), so it opens that attempt
alone, and nothing once the attempt is over. The secret itself opens every attempt.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping

from agl.proxy.refusal import CallRefusedError
from agl.types.tokens import is_scoped, scope_of

_BEARER = b"bearer "


class AttemptKeys:
    """Checks the keys of requests.

    Args:
        secret: of which the keys are made.
        required: refuse requests without a valid key. Otherwise only the key of another attempt is refused, because it
            shows that an agent mixes up its attempts.
    """

    def __init__(self, secret: str, *, required: bool) -> None:
        self._secret = secret
        self._required = required

    def check_secret(self, headers: Mapping[bytes, bytes]) -> None:
        """Let the request pass if it comes from whoever runs the proxy.

        Raises:
            CallRefusedError: 401 without the secret, where one is required.
        """
        shown = _presented(headers)
        if self._required and not any(hmac.compare_digest(key, self._secret.encode()) for key in shown):
            message = "this needs the proxy's own token: send it as 'Authorization: Bearer <token>'"
            raise CallRefusedError(message, status=401, code="invalid_api_key")

    def check(self, headers: Mapping[bytes, bytes], rollout_id: str, attempt_id: str) -> None:
        """Let the request pass if it may call as this attempt.

        Raises:
            CallRefusedError: 401 without a valid key, 403 with the key of another attempt.
        """
        foreign = False
        for presented in _presented(headers):
            if hmac.compare_digest(presented, self._secret.encode()):
                return
            key = presented.decode("ascii", "replace")
            scope = scope_of(self._secret, key) if is_scoped(key) else None
            if scope == (rollout_id, attempt_id):
                return
            foreign = foreign or scope is not None
        if foreign:
            message = (
                f"this key is another attempt's: attempt {attempt_id} of rollout {rollout_id} has its own"
            )
            raise CallRefusedError(message, status=403, code="key_of_another_attempt", retry=False)
        if self._required:
            message = (
                "this proxy needs the attempt's key: send the api_key of the LLM resource as 'Authorization: Bearer "
                "<key>' or 'x-api-key: <key>'"
            )
            raise CallRefusedError(message, status=401, code="invalid_api_key")


def _presented(headers: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """The keys that a request shows, as OpenAI's and as Anthropic's clients send them."""
    authorization = headers.get(b"authorization", b"")
    if authorization[: len(_BEARER)].lower() == _BEARER:
        yield authorization[len(_BEARER) :].strip()
    if b"x-api-key" in headers:
        yield headers[b"x-api-key"].strip()
