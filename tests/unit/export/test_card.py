"""The model card: read from the run's folder alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from agl.export.card import CURVE_ROWS, card_text, license_of, made_from

SETTINGS = """\
name: mine
seed: 3
policy:
  path: {base}
  lora: {{rank: 8, alpha: 16.0}}
algorithm:
  _target_: agl.algorithms.grpo.GRPO
data:
  _target_: agl.data.FileTasks
  train: a|b.jsonl
  val: null
"""


def run_folder(folder: Path, *, base: str = "org/base", steps: int = 3) -> Path:
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(SETTINGS.format(base=base))
    lines = [{"step": 0, "time": 1, "val/reward": 0.25}]
    lines += [{"step": step, "time": 1, "train/reward": step / 8, "update/kl": 9} for step in range(1, steps)]
    lines += [{"step": steps, "train/reward": None, "val/reward": 0.75, "val/reward_greedy": 1.0}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 9')
    return folder


def card(folder: Path, *, adapter: bool = False) -> str:
    return card_text(made_from(folder, "from policy/"), title="mine", adapter=adapter)


def test_the_card_says_recipe_base_data_numbers_and_curve(tmp_path: Path) -> None:
    text = card(run_folder(tmp_path / "run"))
    front = yaml.safe_load(text.split("---")[1])
    assert front == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["agl", "grpo"],
        "base_model": "org/base",
    }
    for line in (
        "| Recipe | mine |",
        "| Algorithm | GRPO |",
        "| Base model | org/base |",
        "| Licence of the base | unknown |",
        "| Weights | all weights, the LoRA adapter merged in; from policy/ |",
        "| LoRA | rank 8, alpha 16.0 |",
        "| val/reward | 0.25 (step 0) | 0.75 (step 3) |",
        "| val/reward_greedy | 1 (step 3) | 1 (step 3) |",
        "| step | train/reward | val/reward | val/reward_greedy |",
        "| 1 | 0.125 |  |  |",
        "| train | a\\|b.jsonl |",
    ):
        assert line in text.splitlines()
    assert SETTINGS.format(base="org/base") in text


def test_a_long_curve_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    text = card(run_folder(tmp_path / "run", steps=1000))
    rows = text.split("## Curve")[1].split("##")[0].strip().splitlines()[2:]
    assert len(rows) <= CURVE_ROWS + 1
    assert rows[0].startswith("| 0 |")
    assert rows[-1].startswith("| 1000 |")


def test_an_adapters_card_loads_it_by_peft(tmp_path: Path) -> None:
    text = card(run_folder(tmp_path / "run"), adapter=True)
    assert "AutoPeftModelForCausalLM.from_pretrained" in text
    assert "a LoRA adapter, to be loaded beside its base" in text


def test_a_folder_without_settings_or_numbers_still_has_a_card(tmp_path: Path) -> None:
    text = card(tmp_path)
    assert "Not measured." in text
    assert "| Base model | unknown |" in text
    assert "## Settings" not in text


@pytest.mark.parametrize(
    ("card", "config", "expected"),
    [
        ("---\nlicense: apache-2.0\n---\nx", "{}", "apache-2.0"),
        ("---\ntags: [a]\nlicense: 'mit'\n---\n", '{"license": "other"}', "mit"),
        ("license: mit", '{"license": "other"}', "other"),
        (None, "{broken", "unknown"),
        (None, None, "unknown"),
    ],
)
def test_the_licence_is_what_the_bases_card_or_configuration_says(
    tmp_path: Path, card: str | None, config: str | None, expected: str
) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert license_of(str(tmp_path)) == expected


def test_a_name_of_the_hub_that_is_not_here_asks_nobody(tmp_path: Path) -> None:
    assert license_of("nobody/has-this-model") == "unknown"


def test_a_licence_that_is_known_is_in_the_front(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text('{"license": "mit"}')
    text = card(run_folder(tmp_path / "run", base=str(base)))
    assert yaml.safe_load(text.split("---")[1])["license"] == "mit"


def test_settings_with_fences_do_not_end_the_block(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "settings.yaml").write_text("prompt: '```'\n")
    assert "````yaml\nprompt: '```'\n````" in card(folder)
