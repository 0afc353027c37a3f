"""what=policy: the trained policy as a Hugging Face folder with a model card: merged, as LoRA adapter, or as GGUF too.

Nothing here imports torch: weights that lie in the run's folder are copied, those of a checkpoint are written by the
run's own learner.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from agl.algorithms.checkpoints import newest_checkpoint
from agl.errors import AglError, ConfigError
from agl.export.card import card_text, made_from
from agl.export.origin import Origin
from agl.export.selection import Exported, OnRollout, refuse_unknown, unheard
from agl.export.whole import appearing
from agl.launch.finished_runs import (
    CHECKPOINTS,
    POLICY,
    SavedWeights,
    newest_weights,
    policy_from_checkpoint,
    restored,
)
from agl.learners.base import Learner, SavesAdapters

Form = Literal["merged", "adapter"]
CARD = "README.md"
_ADAPTER = "adapter_config.json"


@dataclass(frozen=True, kw_only=True)
class PolicyExport:
    """The policy of a training run: its ``policy/``, else its newest checkpoint.

    Args:
        lora: ``merged`` writes whole weights, LoRA merged in; ``adapter`` only the LoRA adapter, in PEFT's form.
        gguf: llama.cpp's ``convert_hf_to_gguf.py``, to write a GGUF file beside the weights; null writes none.
        gguf_type: of the numbers in that file, as the converter's ``--outtype`` takes it: f32, f16, bf16, q8_0, ...
    """

    lora: Form = "merged"
    gguf: str | None = None
    gguf_type: str = "f16"

    def __post_init__(self) -> None:
        refuse_unknown("lora", [self.lora], get_args(Form))
        if self.gguf is None:
            return
        if self.lora == "adapter":
            raise ConfigError("gguf=... converts whole weights: leave lora=adapter out")
        if not Path(self.gguf).expanduser().is_file():
            raise ConfigError(
                f"gguf={self.gguf}: there is no such file; give the convert_hf_to_gguf.py of a llama.cpp checkout"
            )
        if not self.gguf_type.replace("_", "").isalnum():
            raise ConfigError(f"gguf_type={self.gguf_type} must be like f16 or q8_0")

    def is_in(self, run_dir: Path) -> bool:
        """Whether the run has weights."""
        return newest_weights(run_dir) is not None or (run_dir / POLICY / _ADAPTER).is_file()

    def default_path(self, origin: Origin) -> Path:
        """Return the folder that is written where none is named."""
        run_dir = _run_dir(origin)
        return Path(f"{run_dir.resolve().name}-{'adapter' if self.lora == 'adapter' else 'policy'}")

    async def write(
        self, origin: Origin, path: Path, *, force: bool = False, on_rollout: OnRollout = unheard
    ) -> Exported:
        """Write the folder.

        Raises:
            ConfigError: it is there already, or the run has no such weights.
            AglError: the converter failed, or the disk is full.
        """
        del on_rollout
        run_dir = _run_dir(origin)
        with appearing(path, force=force) as partial:
            written = _write_adapter if self.lora == "adapter" else _write_whole
            source = await written(run_dir, origin, partial)
            title = f"{run_dir.resolve().name}: a policy trained with agl"
            card = card_text(made_from(run_dir, source), title=title, adapter=self.lora == "adapter")
            (partial / CARD).write_text(card, encoding="utf-8")
            if self.gguf is not None:
                _convert(self.gguf, partial, f"{path.name}-{self.gguf_type}", self.gguf_type)
            files = _num_files(partial)
        return Exported(path=path, counts={"files": files}, notes=(source,))


def _num_files(folder: Path) -> int:
    return sum(file.is_file() for file in folder.rglob("*"))


def _run_dir(origin: Origin) -> Path:
    if origin.run_dir is None:
        raise ConfigError("what=policy needs the run's folder, which has the weights: name it with --run-dir")
    return origin.run_dir


async def _write_whole(run_dir: Path, origin: Origin, folder: Path) -> str:
    weights = newest_weights(run_dir)
    if weights is None:
        if (run_dir / POLICY / _ADAPTER).is_file():
            raise ConfigError(
                f"{run_dir / POLICY} is a LoRA adapter, and its base is not here: export it with lora=adapter"
            )
        raise ConfigError(
            f"{run_dir} has no policy: neither {POLICY}/ nor a checkpoint; what=prompts exports prompts"
        )
    if weights.is_checkpoint:
        await policy_from_checkpoint(_learner(run_dir, origin), weights.folder, folder)
        return f"from {weights.folder.name}, as the run has not ended"
    shutil.copytree(weights.folder, folder)
    return _final(weights)


def _final(weights: SavedWeights) -> str:
    return f"from {weights.folder.name}/, the run's last"


async def _write_adapter(run_dir: Path, origin: Origin, folder: Path) -> str:
    kept, checkpoint = run_dir / POLICY, newest_checkpoint(run_dir / CHECKPOINTS)
    if (kept / _ADAPTER).is_file():
        shutil.copytree(kept, folder)
        return f"from {POLICY}/, the run's last"
    if checkpoint is None:
        raise ConfigError(
            f"lora=adapter: {run_dir} has no checkpoint, and only these hold the adapter apart; leave it out"
        )
    learner = _learner(run_dir, origin)
    if not isinstance(learner, SavesAdapters):
        raise ConfigError(
            f"lora=adapter: the learner {type(learner).__name__} of {run_dir} writes no adapter"
        )
    _make(folder)
    async with restored(learner, checkpoint):
        await learner.save_adapter(folder)
    return f"from {checkpoint.name}"


def _make(folder: Path) -> None:
    folder.mkdir()


def _learner(run_dir: Path, origin: Origin) -> Learner:
    if origin.learner is None:
        raise ConfigError(
            f"{run_dir} has its weights only in checkpoints, and no settings.yaml that says how to read them"
        )
    return origin.learner()


def _convert(converter: str, folder: Path, name: str, kind: str) -> None:
    """Write a GGUF file into the folder by llama.cpp's converter.

    Raises:
        AglError: it failed; the message has its last words.
    """
    target = folder / f"{name}.gguf"
    script = Path(converter).expanduser()
    command = [sys.executable, str(script), str(folder), "--outfile", str(target), "--outtype", kind]
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode != 0 or not target.is_file():
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        reason = said[-1] if said else "it said nothing and wrote no file"
        raise AglError(f"gguf: {script.name} failed (exit {done.returncode}): {reason}")
