"""The model card of an exported policy: what it was made of, on which data, and how it did, for a reader on the Hub.

Everything in it is read from the run's folder (settings, numbers) and from what the base brings along; nothing is asked
of a hub. Source of the fields on top: https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from agl import __version__

UNKNOWN = "unknown"
CURVE_ROWS = 20
"""Steps that the card's curve shows at most."""
_HELD_OUT = ("val/reward", "val/reward_greedy")
_CURVE = ("train/reward", *_HELD_OUT)
_LICENSE = re.compile(r"^license\s*:\s*(.+?)\s*$", re.MULTILINE)
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFrom:
    """What a policy was made from.

    Args:
        settings: of the run, as written, secrets masked.
        settings_text: the same as a file.
        numbers: the rewards of each step.
        base: a folder or a name on the Hub.
        license: of the base, ``unknown`` where nothing says it.
        source: which weights of the run these are.
    """

    settings: Mapping[str, Any]
    settings_text: str
    numbers: list[tuple[int, Mapping[str, float]]]
    base: str
    license: str
    source: str


def made_from(run_dir: Path, source: str) -> MadeFrom:
    """Read what the run's folder says about its policy; what is missing there is unknown."""
    text = _text(run_dir / "settings.yaml")
    settings = _mapping(_yaml(text))
    base = str(_mapping(settings.get("policy")).get("path") or UNKNOWN)
    return MadeFrom(
        settings=settings,
        settings_text=text,
        numbers=list(_numbers(run_dir / "metrics.jsonl")),
        base=base,
        license=license_of(base),
        source=source,
    )


def license_of(base: str) -> str:
    """Return the licence that the base's card or configuration names, else ``unknown``; a hub is not asked."""
    card, config = (_file_of(base, name) for name in ("README.md", "config.json"))
    front = _FRONT.match(_text(card)) if card else None
    named = _LICENSE.search(front.group(1)) if front else None
    if named:
        return named.group(1).strip("\"'")
    try:
        found = json.loads(_text(config)) if config else None
    except ValueError:
        found = None
    return str(_mapping(found).get("license") or UNKNOWN)


def _file_of(base: str, name: str) -> Path | None:
    """A file of the base, in its folder or in the local cache of the Hub."""
    folder = Path(base).expanduser()
    if folder.is_dir():
        return folder / name
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    try:
        cached = try_to_load_from_cache(base, name)
    except ValueError:  # not a name of the Hub
        return None
    return Path(cached) if isinstance(cached, str) else None


def card_text(made: MadeFrom, *, title: str, adapter: bool) -> str:
    """Return the card."""
    parts = [_front(made, adapter=adapter), f"# {_inline(title)}", _summary(made, adapter=adapter)]
    parts += [_results(made), _curve(made), _data(made), _use(adapter=adapter), _settings(made)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _front(made: MadeFrom, *, adapter: bool) -> str:
    on_hub = not Path(made.base).expanduser().is_absolute() and re.fullmatch(r"[\w.-]+/[\w.-]+", made.base)
    fields: dict[str, Any] = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["agl", _last(made.settings, "algorithm").lower() or UNKNOWN],
    }
    if made.license != UNKNOWN:
        fields["license"] = made.license
    if on_hub:
        fields["base_model"] = made.base
    return f"---\n{yaml.safe_dump(fields, sort_keys=False).rstrip()}\n---"


def _summary(made: MadeFrom, *, adapter: bool) -> str:
    lora = _mapping(_mapping(made.settings.get("policy")).get("lora"))
    kind = (
        "a LoRA adapter, to be loaded beside its base"
        if adapter
        else "all weights, the LoRA adapter merged in"
        if lora
        else "all weights"
    )
    rows = {
        "Recipe": made.settings.get("name"),
        "Algorithm": _last(made.settings, "algorithm"),
        "Base model": made.base,
        "Licence of the base": made.license,
        "Weights": f"{kind}; {made.source}",
        "LoRA": f"rank {lora.get('rank')}, alpha {lora.get('alpha')}" if lora else None,
        "Seed": made.settings.get("seed"),
        "Made with": f"agl {__version__}",
    }
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items() if value is not None]
    return "\n".join(["| | |", "|---|---|", *lines])


def _results(made: MadeFrom) -> str:
    lines = ["## Held-out reward", ""]
    found = list[str]()
    for name in _HELD_OUT:
        steps = [(step, values[name]) for step, values in made.numbers if name in values]
        if steps:
            (first, before), (last, after) = steps[0], steps[-1]
            found.append(f"| {name} | {before:.4g} (step {first}) | {after:.4g} (step {last}) |")
    if not found:
        return "\n".join([*lines, "Not measured."])
    return "\n".join([*lines, "| metric | before | after |", "|---|---|---|", *found])


def _curve(made: MadeFrom) -> str:
    names = [name for name in _CURVE if any(name in values for _, values in made.numbers)]
    rows = [(step, values) for step, values in made.numbers if any(name in values for name in names)]
    if not rows:
        return ""
    shown = rows[:: -(-len(rows) // CURVE_ROWS)]
    shown = shown if shown[-1] is rows[-1] else [*shown, rows[-1]]
    lines = ["## Curve", "", f"| step | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for step, values in shown:
        cells = [f"{values[name]:.4g}" if name in values else "" for name in names]
        lines.append(f"| {step} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _data(made: MadeFrom) -> str:
    data = _mapping(made.settings.get("data"))
    rows = [f"| {name} | {_cell(value)} |" for name, value in data.items() if value not in (None, {}, [])]
    return "\n".join(["## Data", "", "| setting | value |", "|---|---|", *rows]) if rows else ""


def _use(*, adapter: bool) -> str:
    load = (
        [
            "from peft import AutoPeftModelForCausalLM",
            "",
            'model = AutoPeftModelForCausalLM.from_pretrained(".")',
        ]
        if adapter
        else [
            "from transformers import AutoModelForCausalLM",
            "",
            'model = AutoModelForCausalLM.from_pretrained(".")',
        ]
    )
    code = [load[0], "from transformers import AutoTokenizer", *load[1:]]
    code.append('tokenizer = AutoTokenizer.from_pretrained(".")  # with its chat template')
    return "\n".join(["## Load it", "", "```python", *code, "```"])


def _settings(made: MadeFrom) -> str:
    if not made.settings_text:
        return ""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", made.settings_text)), default=0))
    return "\n".join(["## Settings", "", f"{fence}yaml", made.settings_text.rstrip(), fence])


def _numbers(file: Path) -> Iterator[tuple[int, Mapping[str, float]]]:
    """The rewards of each step that has any, a line at a time; a broken line is passed over."""
    if not file.is_file():
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                values = _mapping(json.loads(line))
                step = int(values["step"])
            except (ValueError, KeyError, TypeError):
                continue
            rewards = {
                name: float(values[name]) for name in _CURVE if isinstance(values.get(name), int | float)
            }
            if rewards:
                yield step, rewards


def _last(settings: Mapping[str, Any], key: str) -> str:
    """The last part of the name of what a setting builds."""
    return str(_mapping(settings.get(key)).get("_target_") or "").rpartition(".")[2]


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _yaml(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return _inline(text).replace("|", "\\|")


def _inline(text: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    return " ".join(text.replace(home, "~").split() if len(home) > 1 else text.split())
