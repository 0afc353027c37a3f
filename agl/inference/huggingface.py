"""Check and load a policy: a Hugging Face folder or name into a tokenizer and a causal language model.

``check_policy_folder`` imports neither torch nor transformers, so that a wrong path is found before anything
heavy starts. A name that is no local path is a hub name; whether the hub may be asked is the user's choice
(``HF_HUB_OFFLINE``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from agl.errors import ConfigError, require_extra
from agl.types.policy import Policy

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_WEIGHT_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def check_policy_folder(policy: Policy) -> None:
    """Check, without importing torch, that ``policy`` can be loaded as far as its files tell.

    Raises:
        ConfigError: the folder or one of its files is missing; the message names the setting and the file.
    """
    _chat_template(policy)
    _model_folder(policy)
    check_tokenizer_folder(policy)


def check_tokenizer_folder(policy: Policy) -> None:
    """Check, without importing transformers, that the policy's tokenizer and chat template are there.

    Raises:
        ConfigError: the folder or one of its files is missing; the message names the setting and the file.
    """
    _chat_template(policy)
    if not _is_local(policy.path):
        return
    where = f"policy.path={policy.path}"
    folder = _existing_folder(policy, where)
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ConfigError(f"{where} has no tokenizer (tokenizer.json); save the tokenizer beside the model")
    if policy.chat_template is None and not _has_chat_template(folder, where):
        raise ConfigError(
            f"{where} has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
            "set policy.chat_template to a Jinja file"
        )


def load_tokenizer(policy: Policy) -> Any:
    """Return the policy's tokenizer, with ``policy.chat_template`` in place of its own where that is set.

    Raises:
        ConfigError: it cannot be loaded, or has no chat template.
    """
    require_extra("loading a tokenizer", "torch", "transformers")
    from transformers import AutoTokenizer

    check_tokenizer_folder(policy)
    if not _is_local(policy.path):
        _ask_hub(policy.path)
    template = _chat_template(policy)
    with _loading(policy, "tokenizer"):
        tokenizer = cast("Any", AutoTokenizer).from_pretrained(
            _location(policy), trust_remote_code=policy.trust_remote_code
        )
    if template is not None:
        tokenizer.chat_template = template
    if not tokenizer.chat_template:
        raise ConfigError(
            f"policy.path={policy.path}: the tokenizer has no chat template; "
            "set policy.chat_template to a Jinja file"
        )
    return tokenizer


def load_generation_config(policy: Policy) -> Any:
    """Return transformers' generation configuration of the policy, None where its files have none."""
    require_extra("loading a tokenizer", "torch", "transformers")
    from transformers import GenerationConfig

    try:
        return cast("Any", GenerationConfig).from_pretrained(_location(policy))
    except (OSError, ValueError):
        return None


def load_model(policy: Policy, *, dtype: Any, device: Any) -> Any:
    """Return the policy as a transformers causal language model in eval mode, with sdpa attention.

    Args:
        policy: whose ``path`` and ``trust_remote_code`` are used.
        dtype: a torch dtype, e.g. of ``resolve_dtype``.
        device: a torch device, e.g. of ``resolve_device``.

    Raises:
        ConfigError: a file is missing or broken, or the files lack some of the model's weights.
    """
    require_extra("loading a policy", "torch", "transformers", "torch")
    from transformers import AutoModelForCausalLM

    _model_folder(policy)
    with _loading(policy, "model"), without_progress_bar():
        model, report = cast("Any", AutoModelForCausalLM).from_pretrained(
            _location(policy),
            dtype=dtype,
            attn_implementation="sdpa",
            trust_remote_code=policy.trust_remote_code,
            output_loading_info=True,
        )
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would go on with random numbers in their place
        raise ConfigError(
            f"policy.path={policy.path}: the weight files lack {len(missing)} of the model's tensors, "
            f"first {missing[0]}"
        )
    return model.to(device).eval()


def resolve_device(policy: Policy) -> Any:
    """Return the torch device that ``policy.device`` means on this machine.

    Raises:
        ConfigError: it asks for a GPU and there is none.
    """
    require_extra("loading a policy", "torch", "torch")
    import torch

    available = torch.cuda.is_available()
    if policy.device == "cuda" and not available:
        raise ConfigError("policy.device=cuda, but torch sees no GPU; use policy.device=cpu or auto")
    if policy.device == "auto":
        return torch.device("cuda" if available else "cpu")
    return torch.device(policy.device)


def resolve_dtype(policy: Policy, device: Any) -> Any:
    """Return the torch dtype that ``policy.dtype`` means; auto is float32 on CPU, bfloat16 on GPU."""
    require_extra("loading a policy", "torch", "torch")
    import torch

    if policy.dtype == "auto":
        # Most CPUs have no bfloat16 arithmetic: measured 45 times slower than float32 there.
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return getattr(torch, policy.dtype)


def max_length(policy: Policy, config: Any) -> int:
    """Return the longest sequence in tokens, prompt and answer together.

    Args:
        policy: its ``max_length`` wins where it is set.
        config: the model's transformers configuration.

    Raises:
        ConfigError: it is too small, or more than the model was made for, or neither names a length.
    """
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    if policy.max_length is None:
        if limit is None:
            raise ConfigError(f"policy.path={policy.path} names no longest sequence; set policy.max_length")
        return int(limit)
    if policy.max_length < 2:
        raise ConfigError(f"policy.max_length={policy.max_length} must be at least 2")
    if limit is not None and policy.max_length > limit:
        raise ConfigError(
            f"policy.max_length={policy.max_length} is more than the {limit} positions "
            f"that policy.path={policy.path} was made for"
        )
    return policy.max_length


def end_token_ids(tokenizer: Any, generation_config: Any) -> frozenset[int]:
    """Return the ids that end an answer: the generation config's and the tokenizer's end-of-sequence tokens.

    Raises:
        ConfigError: there is none, so that no answer would ever end.
    """
    named = getattr(generation_config, "eos_token_id", None)
    many = cast("list[int | None]", named if isinstance(named, list) else [named])
    ids = {token for token in many if token is not None}
    if tokenizer.eos_token_id is not None:
        ids.add(int(tokenizer.eos_token_id))
    if not ids:
        raise ConfigError(
            f"policy.path={tokenizer.name_or_path} names no end-of-sequence token "
            "(eos_token_id in generation_config.json, eos_token in tokenizer_config.json)"
        )
    return frozenset(ids)


def _is_local(path: str) -> bool:
    """Whether ``path`` is a folder; ``organisation/model`` is a hub name unless such a folder exists."""
    looks_local = (
        path.startswith((".", "/", "~")) or path.count("/") > 1 or (os.sep != "/" and os.sep in path)
    )
    return looks_local or Path(path).exists()


def _model_folder(policy: Policy) -> Path | None:
    """Return the checked folder of configuration and weights, or None when the path is a hub name."""
    if not _is_local(policy.path):
        return None
    where = f"policy.path={policy.path}"
    folder = _existing_folder(policy, where)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{where} has no config.json; it must be a Hugging Face model folder")
    _read_json(folder / "config.json", where)
    _check_weights(folder, where)
    return folder


def _existing_folder(policy: Policy, where: str) -> Path:
    folder = Path(policy.path).expanduser()
    if not folder.exists():
        raise ConfigError(f"{where} does not exist")
    if not folder.is_dir():
        raise ConfigError(f"{where} is not a folder; it must be a Hugging Face model folder")
    return folder


def _ask_hub(name: str) -> None:
    """Ask the hub once for a model that is not in the local cache; transformers would try again for a minute.

    Raises:
        ConfigError: it does not answer, or has no such model for us.
    """
    import huggingface_hub as hub
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    # The bases of its error are those of the HTTP library it uses, which differs between versions.
    unreachable = (OSError, ValueError, *cast("tuple[type[Exception], ...]", HfHubHTTPError.__bases__))
    where = f"policy.path={name} is no folder here, and {hub.constants.ENDPOINT}"
    try:
        if not isinstance(hub.try_to_load_from_cache(name, "config.json"), str):
            cast("Any", hub).get_hf_file_metadata(hub.hf_hub_url(name, "config.json"))
    except RepositoryNotFoundError as error:
        raise ConfigError(f"{where} has no such model, or a private one that HF_TOKEN must open") from error
    except unreachable as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(f"{where} does not give it: {first}") from error


def _location(policy: Policy) -> str:
    return str(Path(policy.path).expanduser()) if _is_local(policy.path) else policy.path


def _check_weights(folder: Path, where: str) -> None:
    if any((folder / name).is_file() for name in _WEIGHTS):
        return
    for name in _WEIGHT_INDEXES:
        if (folder / name).is_file():
            shards = _read_json(folder / name, where).get("weight_map", {})
            missing = sorted({shard for shard in shards.values() if not (folder / shard).is_file()})
            if missing:
                raise ConfigError(f"{where} has no {missing[0]}, which its {name} names")
            return
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(f"{where} holds a LoRA adapter only; merge it into its base model first")
    raise ConfigError(f"{where} has no weights (model.safetensors)")


def _has_chat_template(folder: Path, where: str) -> bool:
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    settings = folder / "tokenizer_config.json"
    return settings.is_file() and bool(_read_json(settings, where).get("chat_template"))


def _chat_template(policy: Policy) -> str | None:
    if policy.chat_template is None:
        return None
    try:
        return Path(policy.chat_template).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"policy.chat_template={policy.chat_template} cannot be read: {error}") from error


def _read_json(path: Path, where: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {path.name} is broken: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: {path.name} is broken: it holds no JSON object")
    return cast("dict[str, Any]", content)


@contextmanager
def _loading(policy: Policy, what: str) -> Generator[None]:
    """Turn what transformers raises over missing or broken files into one line that names the setting."""
    from pickle import UnpicklingError

    from safetensors import SafetensorError

    broken = (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError, UnpicklingError)
    try:
        yield
    except ConfigError:
        raise
    except broken as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(f"policy.path={policy.path}: the {what} cannot be loaded: {first}") from error


@contextmanager
def without_progress_bar() -> Generator[None]:
    """Silence transformers' progress bars: what a person sees is the command line's own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
