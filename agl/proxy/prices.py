"""What a model call costs: prices by model name, from the user's settings or from litellm's price map.

The map is read out of the installed litellm package as a file; litellm itself is not imported. A model without a price
has an unknown cost, never none. The map's zeros are unknown as well: it has them also for models that nobody priced;
a model that is free is named in the settings.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import orjson

from agl.errors import ConfigError
from agl.proxy.canonical import token_count

log = logging.getLogger(__name__)

_MAP_FILE = "model_prices_and_context_window_backup.json"
_MAP_NAMES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "reasoning": "output_cost_per_reasoning_token",
}
_LONG = re.compile(r"input_cost_per_token(_above_(\d+)k_tokens)")
_MILLION = 1_000_000
_MAX_UNKNOWN = 1024
"""Names without a price that are remembered as such, and characters of one: they come from clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD per million tokens.

    Args:
        input: of the prompt.
        output: of the answer.
        cached_input: of the prompt's tokens that were read from a cache; None is as ``input``.
        cache_write: of the prompt's tokens that were written to a cache; None is as ``input``.
        reasoning: of the answer's tokens that are reasoning; None is as ``output``.
        long_prompts: the prices of calls with more than so many prompt tokens, fewest first.
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None
    long_prompts: tuple[tuple[int, Price], ...] = ()


class Prices:
    """Finds the price of a model; litellm's map is read once, when the first model without a setting is asked for.

    Reading takes about 20 ms and 7 MB (litellm 1.110, 4,900 models).

    Args:
        overrides: by model name, ``input`` and ``output`` and, where they differ, ``cached_input``, ``cache_write`` and
            ``reasoning``, in USD per million tokens.
        map_file: litellm's price map; None is the installed package's.
    """

    def __init__(
        self,
        overrides: Mapping[str, Mapping[str, float]] | None = None,
        *,
        map_file: Path | None = None,
    ) -> None:
        self._known = {
            model: _price_of_setting(model, setting) for model, setting in (overrides or {}).items()
        }
        self._unknown: set[str] = set()
        self._map_file = map_file

    def price_of(self, model: str) -> Price | None:
        """Return the price of a model, None when it is not known.

        ``provider/model`` is also found as ``model`` where the map says that it is that provider's.
        """
        known = self._known.get(model)
        if known is None and model not in self._unknown:
            known = self._mapped(model)
            if known is not None:
                self._known[model] = known
            elif len(self._unknown) < _MAX_UNKNOWN and len(model) < _MAX_UNKNOWN:
                self._unknown.add(model)
        return known

    def _mapped(self, model: str) -> Price | None:
        entry = self._map.get(model)
        provider, _, name = model.partition("/")
        if entry is None and name and self._map.get(name, {}).get("litellm_provider") == provider:
            entry = self._map[name]
        return None if entry is None else _price_of_entry(entry)

    @cached_property
    def _map(self) -> Mapping[str, Mapping[str, Any]]:
        file = self._map_file or litellm_map_file()
        if file is None:
            return {}
        try:
            parsed: object = orjson.loads(file.read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            log.warning("the price map %s cannot be read, costs are unknown: %s", file, error)
            return {}
        entries = cast("Mapping[str, object]", parsed if isinstance(parsed, dict) else {})
        return {name: cast("Mapping[str, Any]", e) for name, e in entries.items() if isinstance(e, dict)}


def cost_of(usage: Mapping[str, Any] | None, price: Price | None) -> float | None:
    """Return what a call costs in USD, None when its usage or its price is not known.

    Args:
        usage: OpenAI's, ``prompt_tokens_details.cache_creation_tokens`` included where it is there.
        price: of the model.
    """
    if usage is None or price is None:
        return None
    prompt, answer = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
    if prompt is None:
        return None
    if answer is None:  # embeddings have no answer to count
        if token_count(usage, "total_tokens") != prompt:
            return None
        answer = 0
    for limit, long_price in price.long_prompts:
        if prompt > limit:
            price = long_price
    read = min(_detail(usage, "prompt_tokens_details", "cached_tokens"), prompt)
    written = min(_detail(usage, "prompt_tokens_details", "cache_creation_tokens"), prompt - read)
    reasoning = min(_detail(usage, "completion_tokens_details", "reasoning_tokens"), answer)
    parts = (
        (prompt - read - written) * price.input,
        read * _or(price.cached_input, price.input),
        written * _or(price.cache_write, price.input),
        (answer - reasoning) * price.output,
        reasoning * _or(price.reasoning, price.output),
    )
    return sum(parts) / _MILLION


def litellm_map_file() -> Path | None:
    """Return the price map of the installed litellm, None without one; litellm is not imported."""
    spec = find_spec("litellm")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder) / _MAP_FILE
        if file.is_file():
            return file
    return None


def _price_of_setting(model: str, setting: Mapping[str, float]) -> Price:
    names = set(_MAP_NAMES)
    for name, value in setting.items():
        if name not in names:
            raise ConfigError(f"prices.{model}.{name} is not a price; one of {', '.join(sorted(names))}")
        if isinstance(value, bool) or not math.isfinite(value) or value < 0:
            raise ConfigError(f"prices.{model}.{name}={value}: USD per million tokens, at least 0")
    missing = [name for name in ("input", "output") if name not in setting]
    if missing:
        raise ConfigError(f"prices.{model}: {' and '.join(missing)} missing, in USD per million tokens")
    return _price(setting)


def _price_of_entry(entry: Mapping[str, Any]) -> Price | None:
    """The price in an entry of litellm's map, which is per token."""
    price = _tier(entry, "")
    if price is None or price.input == price.output == 0:
        return None
    tiers = sorted((int(m[2]) * 1000, m[1]) for name in entry if (m := _LONG.fullmatch(name)) is not None)
    long_prompts = tuple((limit, tier) for limit, end in tiers if (tier := _tier(entry, end)) is not None)
    return replace(price, long_prompts=long_prompts)


def _tier(entry: Mapping[str, Any], ending: str) -> Price | None:
    """The prices whose names have this ending; what it does not change stays as without it."""
    found: dict[str, float] = {}
    for name, mapped in _MAP_NAMES.items():
        value = entry.get(mapped + ending, entry.get(mapped))
        if isinstance(value, int | float):
            found[name] = float(value) * _MILLION
    return _price(found) if "input" in found and "output" in found else None


def _price(named: Mapping[str, float]) -> Price:
    return Price(
        input=named["input"],
        output=named["output"],
        cached_input=named.get("cached_input"),
        cache_write=named.get("cache_write"),
        reasoning=named.get("reasoning"),
    )


def _detail(usage: Mapping[str, Any], details: str, name: str) -> int:
    return token_count(usage.get(details), name) or 0


def _or(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price
