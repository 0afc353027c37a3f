from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agl.errors import ConfigError
from agl.learners.torch.models import (
    Critic,
    Models,
    hidden_and_logits,
    load_models,
    merged_weights,
    save_hugging_face,
)
from agl.types.policy import Lora, Policy

IDS = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 3, 0, 0]])
ROWS = torch.tensor([1, 3, 7])  # (0, 1), (0, 3), (1, 2) of 2 x 5


def load(policy: Policy, **settings: Any) -> Models:
    plain = {
        "critic": "none",
        "reference": False,
        "gradient_checkpointing": False,
        "device": torch.device("cpu"),
        "seed": 0,
    }
    return load_models(policy, **(plain | settings))


def with_lora(policy: Policy, **settings: Any) -> Policy:
    return replace(policy, lora=Lora(rank=4, alpha=8.0, **settings))


def shake(models: Models) -> None:
    """Move every trained weight, so that low-rank matrices are no longer zero."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in models.trainable_policy().values():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)


def logits_of(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def test_logits_at_the_rows_asked_for_equal_those_of_the_full_forward(
    policy: Policy, plain_model: Any
) -> None:
    hidden, logits = hidden_and_logits(load(policy).policy, IDS, ROWS)
    full = plain_model(IDS, output_hidden_states=True)
    torch.testing.assert_close(logits, full.logits.flatten(0, 1)[ROWS], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden, full.hidden_states[-1].flatten(0, 1)[ROWS], rtol=1e-5, atol=1e-5)


def test_without_logits_the_output_layer_sees_nothing(policy: Policy) -> None:
    model = load(policy).policy
    hidden, logits = hidden_and_logits(model, IDS, ROWS, logits=False)
    assert hidden.shape == (3, 32)
    assert logits.shape == (0, 20)
    assert not model.lm_head._forward_pre_hooks


def test_what_a_model_does_to_its_logits_is_kept(policy: Policy) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        final_logit_softcapping=0.01,
        pad_token_id=0,
    )
    model = Gemma2ForCausalLM(config).eval()
    _, logits = hidden_and_logits(model, IDS, ROWS)
    assert logits.abs().max() <= 0.01
    torch.testing.assert_close(logits, logits_of(model).flatten(0, 1)[ROWS], rtol=1e-5, atol=1e-6)


def test_padding_behind_a_sequence_changes_none_of_its_logits(policy: Policy) -> None:
    model = load(policy).policy
    alone = model(IDS[1:, :3]).logits[0]
    _, padded = hidden_and_logits(model, IDS, torch.tensor([5, 6, 7]))
    torch.testing.assert_close(padded, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_merged_weights_are_a_copy_under_the_plain_names(
    policy: Policy, untied_policy: Policy, plain_model: Any, tied: bool
) -> None:
    models = load(policy if tied else untied_policy)
    merged = merged_weights(models)
    assert merged.keys() == plain_model.state_dict().keys()
    embedding, output = merged["model.embed_tokens.weight"], merged["lm_head.weight"]
    assert (embedding.data_ptr() == output.data_ptr()) is tied
    before = embedding.clone()
    shake(models)
    assert torch.equal(embedding, before)


@pytest.mark.parametrize("tied", [True, False])
def test_lora_weights_merge_into_the_plain_model_and_stay_apart_in_the_learner(
    policy: Policy, untied_policy: Policy, tied: bool
) -> None:
    from transformers import AutoModelForCausalLM

    chosen = policy if tied else untied_policy
    models = load(with_lora(chosen))
    assert set(models.trainable_policy()) == {
        f"model.layers.0.{part}_proj.lora_{side}.default.weight"
        for part in (
            "self_attn.q",
            "self_attn.k",
            "self_attn.v",
            "self_attn.o",
            "mlp.gate",
            "mlp.up",
            "mlp.down",
        )
        for side in "AB"
    }
    shake(models)
    adapted = logits_of(models.policy)
    plain = AutoModelForCausalLM.from_pretrained(chosen.path, dtype=torch.float32)
    assert (logits_of(plain) - adapted).abs().max() > 0.01
    plain.load_state_dict(merged_weights(models), strict=True)
    torch.testing.assert_close(logits_of(plain), adapted, rtol=1e-4, atol=1e-4)
    assert torch.equal(logits_of(models.policy), adapted)


def test_a_reference_stays_where_the_policy_began(policy: Policy, plain_model: Any) -> None:
    for chosen, kind in ((policy, "copy"), (with_lora(policy), "adapter_off")):
        models = load(chosen, reference=True)
        assert models.reference_kind == kind
        shake(models)
        with models.as_reference() as reference:
            torch.testing.assert_close(logits_of(reference), logits_of(plain_model), rtol=1e-6, atol=1e-6)
        assert (logits_of(models.policy) - logits_of(plain_model)).abs().max() > 0.01
        assert all(parameter.requires_grad for parameter in models.trainable_policy().values())


def test_lora_begins_as_the_policy_itself_and_by_the_seed(policy: Policy, plain_model: Any) -> None:
    before = torch.get_rng_state()
    first, same, other = (load(with_lora(policy), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)  # the process's own generator is left alone
    torch.testing.assert_close(logits_of(first.policy), logits_of(plain_model), rtol=1e-6, atol=1e-6)
    name = "model.layers.0.mlp.up_proj.lora_A.default.weight"
    assert torch.equal(first.trainable_policy()[name], same.trainable_policy()[name])
    assert not torch.equal(first.trainable_policy()[name], other.trainable_policy()[name])


def test_lora_on_a_tied_embedding_is_refused(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"policy\.lora\.target_modules=.*tied embedding"):
        load(with_lora(policy, target_modules=("embed_tokens",)))


def test_lora_on_no_layer_at_all_is_refused(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"policy\.lora\.target_modules=\('nowhere',\)"):
        load(with_lora(policy, target_modules=("nowhere",)))


def test_a_critic_begins_at_zero() -> None:
    assert Critic(4, None)(torch.randn(3, 4)).tolist() == [0.0, 0.0, 0.0]


def test_a_critic_of_its_own_shares_no_weight_with_the_policy(policy: Policy, untied_policy: Policy) -> None:
    models = load(policy, critic="model")
    own = {parameter.data_ptr() for parameter in models.trainable_critic().values()}
    assert not own & {parameter.data_ptr() for parameter in models.trainable_policy().values()}
    assert len(own) == len(models.trainable_policy()) + 2  # weight and bias of the head
    assert "backbone.lm_head.weight" not in load(untied_policy, critic="model").trainable_critic()


def test_a_models_own_dropout_is_off(policy: Policy, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(policy.path)
    model.config.attention_dropout = 0.9
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(policy.path).save_pretrained(tmp_path)
    trained = load(replace(policy, path=str(tmp_path))).policy
    assert trained.training
    torch.testing.assert_close(logits_of(trained), logits_of(model), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_policy_loads_with_plain_transformers(
    policy: Policy, untied_policy: Policy, tmp_path: Path, lora: bool, tied: bool
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    chosen = policy if tied else untied_policy
    chosen = with_lora(chosen) if lora else chosen
    models = load(chosen)
    shake(models)
    save_hugging_face(models, chosen, tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert loaded.dtype == torch.float32
    torch.testing.assert_close(logits_of(loaded), logits_of(models.policy), rtol=1e-4, atol=1e-4)
    assert loaded.config.tie_word_embeddings is tied
    assert loaded.generation_config.eos_token_id == 2
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    messages = [{"role": "user", "content": "w0 w1"}]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == "w0 w1 "
    assert tokenizer("w0 w1")["input_ids"] == [3, 4]
    assert not list(tmp_path.glob("adapter*"))
    load(replace(policy, path=str(tmp_path)))  # and a learner goes on from it
