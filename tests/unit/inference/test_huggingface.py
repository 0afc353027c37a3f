from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from agl.errors import ConfigError
from agl.inference.huggingface import (
    check_policy_folder,
    check_tokenizer_folder,
    end_token_ids,
    load_generation_config,
    load_model,
    load_tokenizer,
    max_length,
    resolve_device,
    resolve_dtype,
)
from agl.types.policy import Policy

CPU = torch.device("cpu")


@pytest.fixture
def broken(policy_folder: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(policy_folder, tmp_path / "copy"))


@pytest.mark.parametrize("path", ["./nowhere", "/no/where", "~/no-such-policy", "a/b/c"])
def test_a_path_that_does_not_exist_is_named(path: str):
    with pytest.raises(ConfigError, match=re.escape(f"policy.path={path} does not exist")):
        check_policy_folder(Policy(path=path))


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_a_hub_name_is_let_through(name: str):
    check_policy_folder(Policy(path=name))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("config.json", "config.json"),
        ("model.safetensors", "weights"),
        ("tokenizer.json", "tokenizer"),
        ("chat_template.jinja", "chat template"),
    ],
)
def test_a_missing_file_is_named(broken: Path, file: str, said: str):
    (broken / file).unlink()
    with pytest.raises(ConfigError, match=said) as caught:
        check_policy_folder(Policy(path=str(broken)))
    assert str(broken) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_shard_is_named(broken: Path):
    (broken / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (broken / "model.safetensors.index.json").write_text(json.dumps(index))
    (broken / "model-00001-of-00002.safetensors").touch()
    with pytest.raises(ConfigError, match=r"no model-00002-of-00002\.safetensors"):
        check_policy_folder(Policy(path=str(broken)))


def test_a_lora_adapter_alone_is_no_policy(broken: Path):
    (broken / "model.safetensors").rename(broken / "adapter_model.safetensors")
    (broken / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="LoRA adapter only"):
        check_policy_folder(Policy(path=str(broken)))


def test_a_file_in_place_of_the_folder_is_refused(broken: Path):
    with pytest.raises(ConfigError, match="is not a folder"):
        check_policy_folder(Policy(path=str(broken / "config.json")))


def test_a_broken_json_file_is_named(broken: Path):
    (broken / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json is broken"):
        check_policy_folder(Policy(path=str(broken)))


def test_the_check_imports_neither_torch_nor_transformers(policy_folder: Path):
    code = (
        "import sys; from agl.inference.huggingface import check_policy_folder; from agl.types.policy import Policy;"
        f"check_policy_folder(Policy(path={str(policy_folder)!r}));"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_chat_template_file_replaces_the_tokenizers_own(broken: Path, tmp_path: Path):
    (broken / "chat_template.jinja").unlink()
    template = tmp_path / "mine.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    tokenizer = load_tokenizer(Policy(path=str(broken), chat_template=str(template)))
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "hi"


def test_a_missing_chat_template_file_is_named(policy: Policy):
    with pytest.raises(ConfigError, match=r"policy.chat_template=no\.jinja cannot be read"):
        check_policy_folder(replace(policy, chat_template="no.jinja"))


def test_a_model_loads_in_eval_mode_with_sdpa(policy: Policy):
    model = load_model(policy, dtype=torch.float32, device=CPU)
    assert not model.training
    assert model.config._attn_implementation == "sdpa"
    assert model.dtype == torch.float32


def test_corrupt_weights_are_a_setting_error(broken: Path):
    (broken / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0not json")
    with pytest.raises(ConfigError, match="the model cannot be loaded") as caught:
        load_model(Policy(path=str(broken)), dtype=torch.float32, device=CPU)
    assert "\n" not in str(caught.value)


def test_weights_that_lack_a_tensor_are_refused_instead_of_made_up(broken: Path):
    from safetensors.torch import load_file, save_file

    tensors = load_file(broken / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ConfigError, match=r"lack 1 of the model's tensors, first model\.layers\.1\.mlp\.up_proj"
    ):
        load_model(Policy(path=str(broken)), dtype=torch.float32, device=CPU)


def test_auto_is_float32_on_cpu_and_bfloat16_on_gpu(policy: Policy):
    assert resolve_dtype(policy, CPU) is torch.float32
    assert resolve_dtype(policy, torch.device("cuda")) is torch.bfloat16
    assert resolve_dtype(replace(policy, dtype="float16"), CPU) is torch.float16
    assert resolve_device(policy) == CPU


def test_the_longest_sequence_is_the_settings_or_the_models(policy: Policy):
    config = load_model(policy, dtype=torch.float32, device=CPU).config
    assert max_length(policy, config) == 256
    assert max_length(replace(policy, max_length=100), config) == 100
    with pytest.raises(ConfigError, match=r"policy\.max_length=257 is more than the 256 positions"):
        max_length(replace(policy, max_length=257), config)
    with pytest.raises(ConfigError, match=r"policy\.max_length=1 must be at least 2"):
        max_length(replace(policy, max_length=1), config)


@pytest.mark.parametrize(
    ("of_config", "of_tokenizer", "ids"),
    [(7, 2, {7, 2}), ([7, 8], 7, {7, 8}), (None, 2, {2}), (7, None, {7})],
)
def test_end_tokens_come_from_generation_config_and_tokenizer(
    of_config: object, of_tokenizer: object, ids: set[int]
):
    tokenizer = SimpleNamespace(eos_token_id=of_tokenizer, name_or_path="p")
    assert end_token_ids(tokenizer, SimpleNamespace(eos_token_id=of_config)) == ids


def test_a_policy_without_end_token_is_refused():
    nothing = SimpleNamespace(eos_token_id=None, name_or_path="p")
    with pytest.raises(ConfigError, match="names no end-of-sequence token"):
        end_token_ids(nothing, nothing)


def test_a_tokenizer_needs_no_weights_beside_it(broken: Path):
    for name in ("model.safetensors", "config.json"):
        (broken / name).unlink()
    policy = Policy(path=str(broken))
    check_tokenizer_folder(policy)
    assert load_tokenizer(policy).encode("SELECT")
    (broken / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="has no tokenizer"):
        check_tokenizer_folder(policy)


def test_the_generation_configuration_is_read_where_there_is_one(broken: Path):
    policy = Policy(path=str(broken))
    assert load_generation_config(policy).eos_token_id == 2
    (broken / "generation_config.json").unlink()
    (broken / "config.json").unlink()
    assert load_generation_config(policy) is None
