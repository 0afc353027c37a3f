"""Settings: what is secret stays secret, what is saved can be gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agl.config import Settings, compose, load_settings, masked, save_settings, settings_text
from agl.config.settings import is_secret, resolved
from agl.errors import ConfigError


def settings_of(**raw: object) -> Settings:
    return Settings(source="test.yaml", raw=raw, values=resolved(raw))


@pytest.mark.parametrize(
    "key",
    ["api_key", "proxy.token", "hf_token", "a.b.password", "client_secret", "Authorization", "X-Api-Key"],
)
def test_keys_of_secrets_are_known(key: str) -> None:
    assert is_secret(key)


@pytest.mark.parametrize(
    "key", ["max_tokens", "token_count", "tokenizer", "api_key_env", "token_mean", "keys"]
)
def test_keys_that_only_sound_like_secrets_are_not(key: str) -> None:
    assert not is_secret(key)


def test_secrets_are_masked_wherever_they_are_repeated() -> None:
    settings = settings_of(api_key="sk-123456", header="Bearer ${api_key}", max_tokens=64, name="n")
    assert masked(settings) == {"api_key": "***", "header": "Bearer ***", "max_tokens": 64, "name": "n"}


def test_a_password_in_an_address_is_masked() -> None:
    assert masked(settings_of(uri="mongodb://me:hunter2@host:1/db")) == {"uri": "mongodb://***@host:1/db"}


def test_what_comes_from_the_environment_is_shown_as_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_TEST_KEY", "sk-from-environment")
    settings = settings_of(api_key="${oc.env:AGL_TEST_KEY}", again="${api_key}")
    assert settings.values["api_key"] == "sk-from-environment"
    assert masked(settings) == {"api_key": "${oc.env:AGL_TEST_KEY}", "again": "***"}


def test_no_secret_and_missing_values_are_not_masked() -> None:
    settings = settings_of(api_key="none", token=None, password="???")
    assert masked(settings) == {"api_key": "none", "token": None, "password": "???"}


def test_printed_settings_hold_no_secret() -> None:
    settings = settings_of(api_key="sk-123456", names=["a", "b"])
    assert yaml.safe_load(settings_text(settings)) == {"api_key": "***", "names": ["a", "b"]}


def test_a_missing_value_stays_missing_and_so_does_what_refers_to_it() -> None:
    settings = settings_of(name="???", run_dir="runs/${name}", other={"seed": "???"})
    assert settings.values["run_dir"] == "???"
    assert settings.missing() == ["name", "other.seed"]


def test_changing_a_value_reaches_what_refers_to_it() -> None:
    settings = settings_of(run_dir="a", store={"path": "${run_dir}/store"})
    assert settings.with_values(run_dir="b").values["store"] == {"path": "b/store"}


def test_a_reference_to_a_node_copies_it() -> None:
    assert settings_of(policy={"path": "p"}, engine={"policy": "${policy}"}).values["engine"] == {
        "policy": {"path": "p"}
    }


def test_saving_fixes_the_time_and_keeps_references(world: Path) -> None:
    settings = compose("train", ["+recipe=sql", "extra=${seed}"], folders=[world])
    save_settings(settings, world / "settings.yaml")
    saved = yaml.safe_load((world / "settings.yaml").read_text())
    assert saved["run_dir"] == settings.values["run_dir"]
    assert saved["extra"] == "${seed}"
    assert load_settings(world / "settings.yaml", ["seed=7"]).values["extra"] == 7


def test_saving_keeps_a_reference_that_has_a_default(world: Path) -> None:
    settings = compose("train", ["+recipe=sql", "extra=${oc.select:seed,5}"], folders=[world])
    save_settings(settings, world / "settings.yaml")
    assert load_settings(world / "settings.yaml", ["seed=7"]).values["extra"] == 7


def test_saving_keeps_secrets_of_the_environment_out_of_the_file(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGL_TEST_KEY", "sk-from-environment")
    settings = compose("train", ["+recipe=sql", "api_key=${oc.env:AGL_TEST_KEY}"], folders=[world])
    save_settings(settings, world / "settings.yaml")
    assert "sk-from-environment" not in (world / "settings.yaml").read_text()
    assert load_settings(world / "settings.yaml").values["api_key"] == "sk-from-environment"


def test_text_that_looks_like_a_reference_survives_saving(world: Path) -> None:
    settings = compose("train", ["+recipe=sql", r"extra='\${name}'"], folders=[world])
    assert settings.values["extra"] == "${name}"
    save_settings(settings, world / "settings.yaml")
    assert load_settings(world / "settings.yaml").values["extra"] == "${name}"


def test_saving_leaves_no_half_written_file(world: Path) -> None:
    save_settings(compose("train", ["+recipe=sql"], folders=[world]), world / "settings.yaml")
    assert [path.name for path in world.glob(".settings*")] == []


def test_the_value_at_fault_is_named_rather_than_what_refers_to_it() -> None:
    with pytest.raises(ConfigError, match=r"^z: cannot resolve \$\{nothing\}"):
        settings_of(a="${z}/store", z="${nothing}")
