"""agl eval: the settings of a recipe or of a run, and who is evaluated where nobody says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from command_line import Agl

from agl.cli.eval_settings import Options, eval_settings, parts_of
from agl.config import compose, save_settings
from agl.errors import ConfigError

RECIPE = ["+recipe=ppo_sql"]


def trained(name: str, *overrides: str) -> Path:
    """The folder of a run of the recipe that left a policy."""
    folder = Path("runs") / name
    (folder / "policy").mkdir(parents=True)
    (folder / "policy" / "config.json").write_text("{}")
    settings = compose("train", [*RECIPE, *overrides]).with_values(run_dir=str(folder))
    save_settings(settings, folder / "settings.yaml")
    return folder


def test_what_is_built_learns_nothing_and_measures_as_the_recipe_samples(in_folder: Path) -> None:
    settings = parts_of(eval_settings(RECIPE, Options(repeats=3, limit=5, mode="val")))
    evaluation = settings.values["evaluation"]
    assert settings.values["_target_"] == "agl.launch.evaluation.EvaluationRun"
    assert not {"learner", "algorithm", "adapter", "metrics", "policy"} & set(settings.values)
    assert (evaluation["temperature"], evaluation["max_tokens"]) == (1.0, 64)
    assert (evaluation["repeats"], evaluation["limit"], evaluation["mode"]) == (3, 5, "val")
    assert str(settings.values["run_dir"]).endswith("-ppo_sql-eval")


def test_without_a_run_the_settings_themselves_are_evaluated(in_folder: Path) -> None:
    assert eval_settings(RECIPE, Options()).values["evaluation"]["resources"] == "base"


def test_the_newest_run_of_the_recipe_is_evaluated_unless_an_override_names_a_model(in_folder: Path) -> None:
    folder = trained("one")
    for given in ([], ["evaluation.repeats=2"]):
        found = eval_settings([*RECIPE, *given], Options()).values["evaluation"]
        assert found["resources"] == str(folder)
    for given in (["policy.path=other"], ["inference=openai"]):
        found = eval_settings([*RECIPE, *given], Options()).values["evaluation"]
        assert found["resources"] == "base", given


def test_latest_is_written_down_as_the_run_that_it_is(in_folder: Path) -> None:
    folder = trained("one")
    settings = eval_settings(RECIPE, Options(resources="latest", against="base"))
    assert settings.values["evaluation"]["resources"] == str(folder)
    assert settings.values["evaluation"]["against"] == "base"


def test_who_is_evaluated_may_be_a_setting(in_folder: Path) -> None:
    found = eval_settings([*RECIPE, "evaluation.resources=base", "evaluation.against=some"], Options())
    assert (found.values["evaluation"]["resources"], found.values["evaluation"]["against"]) == (
        "base",
        "some",
    )


def test_a_run_without_a_recipe_is_evaluated_with_what_it_was_made_of(in_folder: Path) -> None:
    folder = trained("one", "algorithm.max_tokens=33", "agent.settings.max_turns=2", "data.num_test=4")
    options = Options(resources="one", repeats=2)
    settings = eval_settings(["data.num_test=3"], options)
    assert settings.values["agent"]["settings"]["max_turns"] == 2
    assert settings.values["data"]["num_test"] == 3
    assert (settings.values["evaluation"]["max_tokens"], settings.values["evaluation"]["repeats"]) == (33, 2)
    assert settings.values["run_dir"] != str(folder)
    assert str(settings.values["store"]["path"]).startswith(str(settings.values["run_dir"]))


def test_a_served_store_is_two_overrides(in_folder: Path) -> None:
    trained("one")
    url = "http://127.0.0.1:4747"
    for overrides, resources in ((RECIPE, "base"), ([], "one")):
        found = eval_settings(overrides, Options(store_url=url, resources=resources)).values["store"]
        assert (found["_target_"], found["url"]) == ("agl.store.client.LightningStoreClient", url)


def test_a_resumed_evaluation_has_the_same_settings_with_overrides_on_top(in_folder: Path) -> None:
    trained("one")
    first = eval_settings(RECIPE, Options(run_dir=Path("runs/e"), repeats=2, against="base"))
    Path("runs/e").mkdir()
    save_settings(first, Path("runs/e/settings.yaml"))
    for resume in ("e", "newest"):
        again = eval_settings(["evaluation.repeats=5"], Options(resume=resume))
        assert again.values["run_dir"] == "runs/e"
        assert again.values["evaluation"] == {**first.values["evaluation"], "repeats": 5}
    assert parts_of(eval_settings([], Options(resume="e"))).values == parts_of(first).values


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(resume="one"), "runs/one is a training run: go on with it by agl train --resume runs/one"),
        (Options(resume="nothing"), "there is no run nothing"),
        (Options(resume="newest"), "no run to resume"),
        (Options(resume="one", run_dir=Path("x")), "leave --run-dir out"),
        (Options(resume="one", against="base"), "leave --against out"),
        (Options(resume="one", resources="base"), "leave --resources out"),
        (Options(resume="one", config_dir=Path()), "leave --config-dir out"),
    ],
)
def test_a_resume_that_cannot_be_meant_is_refused(in_folder: Path, options: Options, message: str) -> None:
    trained("one")
    with pytest.raises(ConfigError, match=message):
        eval_settings([], options)


def test_a_training_run_is_not_gone_on_with_as_an_evaluation_nor_the_other_way_round(
    in_folder: Path, agl: Agl
) -> None:
    settings = eval_settings(RECIPE, Options(run_dir=Path("runs/e")))
    Path("runs/e").mkdir(parents=True)
    save_settings(settings, Path("runs/e/settings.yaml"))
    code, out, err = agl("train", "--resume", "e")
    assert (code, out) == (2, "")
    assert "runs/e is an evaluation: go on with it by agl eval --resume runs/e" in err
    assert "no run to resume" in agl("train", "--resume")[2]


def test_cfg_prints_the_settings_and_makes_nothing(in_folder: Path, agl: Agl) -> None:
    code, out, err = agl("eval", *RECIPE, "--cfg", "-k", "2")
    assert (code, err) == (0, "")
    assert yaml.safe_load(out)["evaluation"]["repeats"] == 2
    assert not Path("runs").exists()


def test_a_model_that_nobody_named_is_left_out(in_folder: Path) -> None:
    settings = eval_settings(["agent.target=a.py:b"], Options(run_dir=Path("x")))
    assert "inference" not in parts_of(settings).values
