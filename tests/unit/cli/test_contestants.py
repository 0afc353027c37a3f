"""Who is evaluated: runs, versions of resources and earlier evaluations, found or refused with what to do."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agl.cli.contestants import EVALUATION, Choice, chosen, newest_run, recorded, with_choice
from agl.config import Settings
from agl.config.settings import resolved
from agl.errors import ConfigError
from agl.launch.finished_runs import SavedWeights
from agl.store.sqlite import SqliteLightningStore
from agl.types import LLM, PromptTemplate, ProxyLLM, Resource, Weights

TRAINER = "agl.trainer.Trainer"
POLICY = {"_target_": "agl.types.policy.Policy", "path": "tiny", "lora": {"rank": 4}}
TRANSFORMERS = {"_target_": "agl.inference.transformers.TransformersEngine", "policy": "${policy}"}


def settings(**raw: Any) -> Settings:
    values = {"name": "mine", "run_dir": "runs/e", "policy": POLICY, "inference": TRANSFORMERS, **raw}
    return Settings(source="eval.yaml", raw=values, values=resolved(values))


def run(name: str, *, target: str = TRAINER, recipe: str = "mine", **written: Any) -> Path:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text(yaml.safe_dump({"_target_": target, "name": recipe, **written}))
    return folder


def policy(folder: Path) -> Path:
    (folder / "policy").mkdir()
    (folder / "policy" / "config.json").write_text("{}")
    return folder


def checkpoint(folder: Path, iteration: int) -> Path:
    place = folder / "checkpoints" / f"iteration-{iteration:06d}"
    place.mkdir(parents=True)
    (place / "state.json").write_text("{}")
    return place


def prompts(folder: Path, **texts: str) -> Path:
    (folder / "prompts").mkdir()
    best = {name: PromptTemplate(template=text).model_dump() for name, text in texts.items()}
    (folder / "prompts" / "best.json").write_text(json.dumps({"prompts": best}))
    return folder


def published(
    folder: Path, resources: Mapping[str, Resource], *, versions: Mapping[int, float] | None = None
) -> str:
    """Put a version into the run's store; return its id."""

    async def publish() -> str:
        async with SqliteLightningStore(str(folder / "store.sqlite")) as store:
            await store.add_run(name="mine", run_id=folder.name, command="train")
            for step, version in (versions or {}).items():
                await store.add_metrics(folder.name, step, {"policy/version": version})
            named = await store.add_resources(
                resources, run_id=folder.name, resources_id=f"{folder.name}-some"
            )
            return named.resources_id

    return asyncio.run(publish())


def test_base_changes_nothing(in_folder: Path) -> None:
    given = settings(resources={"prompt": {"kind": "prompt_template", "template": "x"}})
    assert with_choice(given, chosen("base", given, store=None)).values == given.values


def test_latest_is_the_newest_training_run_of_the_recipe_that_left_something(in_folder: Path) -> None:
    old, new = policy(run("old")), prompts(run("new"), ask="{q}")
    policy(run("other", recipe="theirs"))
    policy(run("eval", target=EVALUATION))
    run("empty")
    for number, folder in enumerate((old, new)):
        os.utime(folder / "settings.yaml", (number, number))
    assert newest_run("mine") == new
    assert chosen("latest", settings(), store=None).name == str(new)
    assert newest_run("nobody") is None


def test_a_run_is_its_policy_and_its_prompts(in_folder: Path) -> None:
    given = {"ask": {"kind": "prompt_template", "template": "first"}, "other": {"n": 1}}
    folder = prompts(policy(run("one", resources=given)), ask="best {q} ${not_a_setting}")
    choice = chosen("one", settings(), store=None)
    assert choice.weights == SavedWeights(folder=folder / "policy", is_checkpoint=False)
    made = with_choice(settings(resources={"mine": 1}), choice).values
    assert made["resources"]["ask"]["template"] == "best {q} ${not_a_setting}"
    assert (made["resources"]["other"], made["resources"]["mine"]) == ({"n": 1}, 1)
    assert made["inference"]["policy"]["path"] == str(folder / "policy")
    assert made["inference"]["policy"]["lora"] is None  # it is merged


def test_an_unfinished_run_is_its_newest_checkpoint(in_folder: Path) -> None:
    folder = run("one")
    saved = checkpoint(folder, 3)
    assert chosen("runs/one", settings(), store=None).weights == SavedWeights(
        folder=saved, is_checkpoint=True
    )


def test_weights_are_not_given_to_an_engine_that_serves_another_model(in_folder: Path) -> None:
    choice = chosen(str(policy(run("one"))), settings(), store=None)
    external = settings(inference={"_target_": "agl.inference.external.ExternalEngine", "model": "gpt"})
    for given in (external, settings(policy=None, inference=None)):
        with pytest.raises(ConfigError, match=r"runs/one has weights of its own.*leave inference=\.\.\. out"):
            with_choice(given, choice)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("latest", "has no run of mine with a policy or prompts; train one"),
        (
            "runs/empty",
            "runs/empty has nothing to evaluate: no policy/, no checkpoint and no prompts/best.json",
        ),
        ("evaluated", "is an evaluation: it can be compared with"),
        ("nothing", "there is no run nothing and no resources of that id in"),
    ],
)
def test_who_is_not_there_is_said_with_what_to_do(in_folder: Path, spec: str, message: str) -> None:
    run("empty")
    run("evaluated", target=EVALUATION)
    with pytest.raises(ConfigError, match=message):
        chosen(spec, settings(), store=None)


def test_a_version_without_updates_brings_its_prompts(in_folder: Path) -> None:
    folder = run("one")
    llm = ProxyLLM(base_url="http://gone:1", model="policy", sampling={"temperature": 0})
    judge = LLM(base_url="http://judge/v1", model="j")
    spec = published(folder, {"llm": llm, "judge": judge, "ask": PromptTemplate(template="v1 {q}")})
    choice = chosen(spec, settings(), store=None)
    assert (choice.name, choice.weights) == (spec, None)
    made = with_choice(settings(), choice).values["resources"]
    assert "llm" not in made  # its address is gone, and how it samples is the evaluation's to say
    assert (made["ask"]["template"], made["judge"]["model"]) == ("v1 {q}", "j")


def test_a_version_of_the_policy_is_in_the_checkpoint_of_its_iteration_or_in_the_policy(
    in_folder: Path,
) -> None:
    folder = policy(run("one"))
    saved = checkpoint(folder, 2)

    def of(version: int) -> Choice:
        llm = ProxyLLM(base_url="http://gone:1", model="policy", policy_version=version)
        spec = published(Path(f"runs/one-{version}"), {"llm": llm}, versions={1: 1, 2: 2, 3: 2, 4: 3})
        return chosen(spec, settings(), store=None)

    for version in (1, 2, 3):  # runs of the same shape, one for each version that is asked for
        copy = policy(run(f"one-{version}"))
        if version != 3:
            checkpoint(copy, 2)
    assert of(3).weights == SavedWeights(folder=Path("runs/one-3/policy"), is_checkpoint=False)
    second = of(2)
    assert second.weights is not None
    assert (second.weights.folder.name, second.policy_version) == (saved.name, 2)
    with pytest.raises(
        ConfigError, match=r"version 1 of the policy.*gone: the run keeps versions 0, 2 and the last, 3"
    ):
        of(1)


def test_a_version_whose_run_is_elsewhere_is_said(in_folder: Path) -> None:
    llm = ProxyLLM(base_url="http://gone:1", model="policy", policy_version=2)
    spec = published(run("one"), {"llm": llm})
    store = SqliteLightningStore("runs/one/store.sqlite")
    Path("runs/one").rename("moved")
    store = SqliteLightningStore("moved/store.sqlite")
    with pytest.raises(
        ConfigError, match="version 2 of the policy of run one, and its folder runs/one is not here"
    ):
        chosen(spec, settings(), store=store)


def test_a_served_store_is_asked_for_ids_and_for_the_latest_run(in_folder: Path) -> None:
    spec = published(run("one"), {"ask": PromptTemplate(template="v1")})
    for asked in (spec, "latest"):
        store = SqliteLightningStore("runs/one/store.sqlite")
        assert chosen(asked, settings(), store=store).name == spec
    with pytest.raises(ConfigError, match="no resources of that id in"):
        chosen("no-such", settings(), store=SqliteLightningStore("runs/one/store.sqlite"))
    with pytest.raises(ConfigError, match="the store has no training run other with resources"):
        chosen("latest", settings(name="other"), store=SqliteLightningStore("runs/one/store.sqlite"))


def test_the_weights_of_an_evaluation_are_found_by_its_resources(in_folder: Path) -> None:
    at = policy(run("one"))
    weights = {"policy_weights": Weights(path=str(at / "policy"), policy_version=5)}
    spec = published(run("evaluated", target=EVALUATION), weights)
    choice = chosen(spec, settings(), store=None)
    assert choice.weights == SavedWeights(folder=at / "policy", is_checkpoint=False)
    assert (choice.policy_version, dict(choice.resources)) == (5, {})
    (at / "policy" / "config.json").unlink()
    with pytest.raises(ConfigError, match="name the weights in runs/one/policy, and these are gone"):
        chosen(spec, settings(), store=None)


def test_an_earlier_evaluation_is_read_from_its_folder(in_folder: Path) -> None:
    folder = run("e1", target=EVALUATION)
    with pytest.raises(
        ConfigError, match="that evaluation has not ended; go on with it: agl eval --resume runs/e1"
    ):
        recorded("e1")
    (folder / "evaluation.json").write_text('{"evaluated": {"contestant": "base", "tasks": []}}')
    found = recorded("runs/e1")
    assert found is not None
    assert (found.folder, found.report["contestant"]) == (folder, "base")
    (folder / "evaluation.json").write_text("{")
    with pytest.raises(ConfigError, match=r"evaluation\.json is damaged"):
        recorded("e1")
    assert recorded(str(policy(run("one")))) is None
    assert recorded("base") is None


def test_settings_that_cannot_be_read_name_their_file(in_folder: Path) -> None:
    folder = run("one")
    (folder / "settings.yaml").write_text("{")
    with pytest.raises(ConfigError, match=r"runs/one/settings\.yaml cannot be read"):
        chosen("one", settings(), store=None)
