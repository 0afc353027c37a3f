"""what=policy: what plain transformers loads gives the same logits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_policies import word_tokenizer, write_llama
from transformers import AutoModelForCausalLM, AutoTokenizer

from agl.algorithms.checkpoints import LoopState, save_checkpoint
from agl.errors import AglError, ConfigError
from agl.export.origin import Origin
from agl.export.policy import PolicyExport
from agl.learners.torch.learner import TorchLearner
from agl.types import LikelihoodLoss, Lora, Policy, TrainingSample

WORDS = ["<pad>", "<s>", "</s>", *"abcdefgh"]
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
IDS = torch.tensor([[3, 4, 5, 6, 7]])
CONVERTER = """\
import sys
from pathlib import Path
folder, out = Path(sys.argv[1]), Path(sys.argv[sys.argv.index("--outfile") + 1])
assert (folder / "config.json").is_file()
if sys.argv[sys.argv.index("--outtype") + 1] == "q4":
    sys.exit("noise\\nerror: unknown outtype q4\\n")
out.write_bytes(b"GGUF")
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    return write_llama(
        folder,
        word_tokenizer(TEMPLATE, words=WORDS),
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def loaded(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def learner_of(base: Path, lora: Lora | None) -> TorchLearner:
    return TorchLearner(policy=Policy(path=str(base), lora=lora), learning_rate=0.05, warmup_steps=0)


async def trained(run_dir: Path, base: Path, lora: Lora | None) -> torch.Tensor:
    """Leave a checkpoint of a policy that has learned something; return its logits."""
    sample = TrainingSample(rollout_id="r", token_ids=[3, 4, 5], loss_mask=[0, 1, 1])
    async with learner_of(base, lora) as learner:
        for _ in range(3):
            await learner.update([sample], LikelihoodLoss())
        await save_checkpoint(run_dir / "checkpoints", LoopState(iteration=3), learner, keep=1)
        await learner.save_policy(run_dir / "whole")
    return logits(loaded(run_dir / "whole"))


async def test_a_finished_runs_policy_is_copied_with_tokenizer_template_and_card(
    tmp_path: Path, base: Path
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "policy").symlink_to(base)
    export = PolicyExport()
    assert export.is_in(run_dir)
    assert export.default_path(Origin(run_dir=run_dir)) == Path("run-policy")
    done = await export.write(Origin(run_dir=run_dir), tmp_path / "out")
    assert torch.equal(logits(loaded(tmp_path / "out")), logits(loaded(base)))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a b"}], tokenize=False) == "a b "
    assert load_file(tmp_path / "out" / "model.safetensors").keys()
    assert (tmp_path / "out" / "README.md").read_text().startswith("---\nlibrary_name: transformers")
    assert done.notes == ("from policy/, the run's last",)


@pytest.mark.parametrize("lora", [None, Lora(rank=2, alpha=4.0)], ids=["whole", "lora"])
async def test_a_checkpoint_is_written_as_plain_weights_with_the_same_logits(
    tmp_path: Path, base: Path, lora: Lora | None
) -> None:
    expected = await trained(tmp_path / "run", base, lora)
    assert not torch.allclose(expected, logits(loaded(base)))
    origin = Origin(run_dir=tmp_path / "run", learner=lambda: learner_of(base, lora))
    done = await PolicyExport().write(origin, tmp_path / "out")
    torch.testing.assert_close(logits(loaded(tmp_path / "out")), expected, rtol=0, atol=0)
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    assert done.notes == ("from iteration-000003, as the run has not ended",)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft's
async def test_the_adapter_alone_on_its_base_gives_the_same_logits(tmp_path: Path, base: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    lora = Lora(rank=2, alpha=4.0)
    expected = await trained(tmp_path / "run", base, lora)
    origin = Origin(run_dir=tmp_path / "run", learner=lambda: learner_of(base, lora))
    export = PolicyExport(lora="adapter")
    assert export.default_path(origin) == Path("run-adapter")
    await export.write(origin, tmp_path / "out")
    model = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.peft_config["default"].base_model_name_or_path == str(base)
    torch.testing.assert_close(logits(model), expected, rtol=1e-5, atol=1e-6)
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == TEMPLATE
    assert not (tmp_path / "out" / "model.safetensors").exists()


async def test_a_services_adapter_is_copied_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "run" / "policy"
    kept.mkdir(parents=True)
    (kept / "adapter_config.json").write_text("{}")
    origin = Origin(run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"is a LoRA adapter, and its base is not here: .* lora=adapter"):
        await PolicyExport().write(origin, tmp_path / "out")
    await PolicyExport(lora="adapter").write(origin, tmp_path / "out")
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["README.md", "adapter_config.json"]


async def test_the_users_converter_writes_a_gguf_beside_the_weights(tmp_path: Path, base: Path) -> None:
    converter = tmp_path / "convert_hf_to_gguf.py"
    converter.write_text(CONVERTER)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "policy").symlink_to(base)
    origin = Origin(run_dir=tmp_path / "run")
    await PolicyExport(gguf=str(converter)).write(origin, tmp_path / "out")
    assert (tmp_path / "out" / "out-f16.gguf").read_bytes() == b"GGUF"
    with pytest.raises(
        AglError, match=r"gguf: convert_hf_to_gguf\.py failed \(exit 1\): error: unknown outtype q4$"
    ):
        await PolicyExport(gguf=str(converter), gguf_type="q4").write(origin, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gguf": "nowhere.py"}, "gguf=nowhere.py: there is no such file"),
        ({"gguf": __file__, "lora": "adapter"}, "gguf=... converts whole weights"),
        ({"gguf": __file__, "gguf_type": "--x"}, "gguf_type=--x must be like"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PolicyExport(**settings)


@pytest.mark.parametrize(
    ("settings", "origin", "message"),
    [
        ({}, Origin(), "needs the run's folder"),
        ({}, Origin(run_dir=Path("nowhere")), "nowhere has no policy: neither policy/ nor a checkpoint"),
        ({"lora": "adapter"}, Origin(run_dir=Path("nowhere")), "lora=adapter: nowhere has no checkpoint"),
    ],
)
def test_a_run_without_such_weights_says_what_it_lacks(
    tmp_path: Path, settings: dict[str, Any], origin: Origin, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        asyncio.run(PolicyExport(**settings).write(origin, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


async def test_all_weights_have_no_adapter(tmp_path: Path, base: Path) -> None:
    await trained(tmp_path / "run", base, None)
    origin = Origin(run_dir=tmp_path / "run", learner=lambda: learner_of(base, None))
    with pytest.raises(ConfigError, match="has no LoRA adapter: take all its weights"):
        await PolicyExport(lora="adapter").write(origin, tmp_path / "out")
