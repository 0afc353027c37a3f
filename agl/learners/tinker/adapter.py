"""What a finished run leaves of its policy: the adapter's files, fetched from the service, and what they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import httpx

from agl.errors import AglError

ABOUT = "tinker.json"
CHUNK_BYTES = 1 << 20


def write_about(folder: Path, about: Mapping[str, Any], tokenizer: Any) -> None:
    """Write what the policy is and its tokenizer.

    Args:
        folder: made if need be.
        about: base model, adapter, and the name of the sampler weights.
        tokenizer: transformers'.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).write_text(json.dumps(dict(about), indent=2), encoding="utf-8")
    tokenizer.save_pretrained(str(folder))


async def download(urls: Mapping[str, str], folder: Path, *, timeout_seconds: float) -> None:
    """Write each file under its name into the folder; a broken-off one is not left behind under it.

    Args:
        urls: by name, relative to the folder.
        folder: to write to.
        timeout_seconds: the longest silence.

    Raises:
        AglError: a name leads out of the folder, or a file cannot be had; no address is in the message.
    """
    async with httpx.AsyncClient(timeout=timeout_seconds, follow_redirects=True) as client:
        for name, url in sorted(urls.items()):
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts or not place.parts:
                raise AglError(f"the Tinker service names a file outside of its folder: {name}")
            target = folder.joinpath(*place.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                await _fetch(client, url, target)
            except httpx.HTTPStatusError as error:
                raise AglError(
                    f"{name}: {urlsplit(url).hostname} answers {error.response.status_code}"
                ) from None
            except httpx.HTTPError as error:
                raise AglError(f"{name}: {urlsplit(url).hostname}: {type(error).__name__}") from None


async def _fetch(client: httpx.AsyncClient, url: str, target: Path) -> None:
    partial = target.with_name(f".partial-{target.name}")
    async with client.stream("GET", url) as answer:
        answer.raise_for_status()
        with partial.open("wb") as file:
            async for chunk in answer.aiter_bytes(CHUNK_BYTES):
                file.write(chunk)
    partial.replace(target)
