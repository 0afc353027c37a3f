"""Composition: groups, recipes, overrides, the search path, and one line on whatever is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl.config import check, compose, load_settings, save_settings, search_folders
from agl.config.compose import built_in_folder, recipe_dir
from agl.errors import ConfigError


def message(world: Path, *overrides: str) -> str:
    """Return the error of a composition; it must be one line."""
    with pytest.raises(ConfigError) as caught:
        compose("train", overrides, folders=[world])
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_recipe_and_overrides_are_applied_in_order(world: Path) -> None:
    settings = compose("train", ["+recipe=chat", "algorithm.group_size=16", "seed=3"], folders=[world])
    assert settings.values["name"] == "chat"
    assert settings.values["seed"] == 3
    assert settings.values["algorithm"] == {
        "_target_": f"{world}/classes.py:Group",
        "group_size": 16,
        "learning_rate": 1e-4,
    }


def test_a_group_is_exchanged_by_its_name(world: Path) -> None:
    assert compose("train", ["algorithm=ppo"], folders=[world]).values["algorithm"]["group_size"] == 2


def test_a_key_is_removed_with_a_tilde(world: Path) -> None:
    assert "kind" not in compose("train", ["~algorithm.kind"], folders=[world]).values["algorithm"]


def test_a_removed_group_takes_with_it_what_a_recipe_says_about_it(world: Path) -> None:
    (world / "recipe" / "own.yaml").write_text("# @package _global_\nalgorithm:\n  group_size: 3\n")
    assert compose("train", ["+recipe=own"], folders=[world]).values["algorithm"]["group_size"] == 3
    assert "algorithm" not in compose("train", ["+recipe=own", "~algorithm"], folders=[world]).values


def test_a_misspelt_key_names_the_nearest(world: Path) -> None:
    assert message(world, "algorithm.group_sizee=8") == (
        "algorithm.group_sizee is not a setting; did you mean algorithm.group_size?"
    )
    assert message(world, "+recipe=sql", "sede=8") == "sede is not a setting; did you mean seed?"


def test_a_key_without_its_group_names_the_full_key(world: Path) -> None:
    assert message(world, "group_size=4") == "group_size is not a setting; did you mean algorithm.group_size?"


def test_a_misspelt_group_names_the_nearest(world: Path) -> None:
    assert message(world, "algorihtm=grpo") == "algorihtm is not a setting; did you mean algorithm?"
    assert message(world, "algorihtm.group_size=3") == (
        "algorihtm.group_size is not a setting; did you mean algorithm?"
    )


def test_a_key_with_nothing_near_lists_what_there_is(world: Path) -> None:
    assert message(world, "algorithm=ppo", "algorithm.zzz=1") == (
        "algorithm.zzz is not a setting; there is group_size, learning_rate"
    )


def test_a_key_below_a_value_says_so(world: Path) -> None:
    assert message(world, "seed.x=1") == "seed.x is not a setting: seed is a single value"


def test_a_setting_where_there_is_none_yet_says_how_to_add_one() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^agent\.settings\.hint is not a setting yet; to add it write \+agent\.settings\.hint=",
    ):
        compose("train", ["agent.target=a.py:b", "agent.settings.hint=x"], folders=search_folders()[:1])
    added = compose("train", ["agent.target=a.py:b", "+agent.settings.hint=x"], folders=search_folders()[:1])
    assert added.values["agent"]["settings"] == {"hint": "x"}


def test_a_misspelt_option_names_the_nearest(world: Path) -> None:
    assert message(world, "algorithm=grpoo") == "there is no algorithm called grpoo; did you mean grpo?"


def test_an_unknown_option_with_nothing_near_lists_what_there_is(world: Path) -> None:
    assert message(world, "algorithm=zzz") == "there is no algorithm called zzz; there is grpo, ppo"


def test_an_unknown_recipe_names_the_nearest(world: Path) -> None:
    assert message(world, "+recipe=sqll") == "there is no recipe called sqll; did you mean sql?"


def test_a_recipe_without_plus_says_how_to_write_it(world: Path) -> None:
    assert (
        message(world, "recipe=sql")
        == "recipe=sql: write +recipe=sql, as nothing of the group recipe is chosen yet"
    )


def test_a_misspelt_group_of_recipes_is_not_added_as_a_key(world: Path) -> None:
    assert message(world, "+recipee=sql") == (
        "+recipee=sql: there is no group of settings called recipee; did you mean recipe?"
    )


def test_a_group_needs_one_of_its_names(world: Path) -> None:
    assert (
        message(world, "algorithm=null")
        == "algorithm=null: choose one of grpo, ppo, or remove it with ~algorithm"
    )


@pytest.mark.parametrize("override", ["seed", "seed=[1", "name=a=b", "=3"])
def test_a_malformed_override_is_shown_back(world: Path, override: str) -> None:
    assert message(world, override).startswith(f"{override}: not an override; write key=value")


def test_a_mapping_is_given_whole_and_may_have_keys_of_its_own() -> None:
    endpoints = "proxy.endpoints={gpu: {model: m, urls: ['http://gpu1:8000/v1']}}"
    settings = compose("proxy", ["store.url=http://s", endpoints], folders=search_folders()[:1])
    assert settings.values["proxy"]["endpoints"] == {"gpu": {"model": "m", "urls": ["http://gpu1:8000/v1"]}}
    check(settings)
    misspelt = ["store.url=http://s", "proxy.endpoint={gpu: {}}"]
    with pytest.raises(ConfigError, match=r"proxy\.endpoint is not a setting.*did you mean proxy\.endpoints"):
        check(compose("proxy", misspelt, folders=search_folders()[:1]))


@pytest.mark.parametrize(
    "url", ["http://host:1/a?b=c&d=e", "mongodb://one:1,two:2/?w=majority", "hf://org/name@main"]
)
def test_a_url_needs_no_quotes(world: Path, url: str) -> None:
    assert compose("train", [f"name={url}"], folders=[world]).values["name"] == url
    assert compose("train", [f"name='{url}'"], folders=[world]).values["name"] == url


def test_a_url_may_refer_to_other_settings(world: Path) -> None:
    settings = compose("train", ["name=http://host:${seed}/?a=b", "seed=5"], folders=[world])
    assert settings.values["name"] == "http://host:5/?a=b"


def test_several_values_are_refused(world: Path) -> None:
    assert message(world, "seed=1,2") == "seed=1,2: several values at once; give one (a list is key=[a,b])"


def test_removing_what_is_not_there_names_the_nearest(world: Path) -> None:
    assert (
        message(world, "~algoritm")
        == "~algoritm: there is nothing of that name to remove; did you mean ~algorithm?"
    )


def test_removing_what_is_null_says_so(world: Path) -> None:
    assert message(world, "~algorithm.limit") == "~algorithm.limit: it is null, which counts as not there"


def test_adding_what_is_there_says_so(world: Path) -> None:
    assert message(world, "+seed=1") == "+seed: seed is there already; write it without the +"


def test_settings_of_hydra_itself_are_refused_rather_than_ignored(world: Path) -> None:
    assert message(world, "hydra.verbose=true") == "hydra.verbose=true: agl takes no settings of Hydra itself"


def test_broken_yaml_is_named_by_file_and_line(world: Path) -> None:
    (world / "recipe" / "broken.yaml").write_text("# @package _global_\nname: [a\nseed: 1\n")
    assert message(world, "+recipe=broken").startswith(f"{world}/recipe/broken.yaml:3: not valid YAML: ")


def test_a_key_given_twice_is_broken_yaml(world: Path) -> None:
    (world / "recipe" / "twice.yaml").write_text("# @package _global_\nname: a\nname: b\n")
    assert message(world, "+recipe=twice") == (
        f"{world}/recipe/twice.yaml:3: not valid YAML: found duplicate key name"
    )


def test_a_file_that_is_no_text_is_one_line(world: Path) -> None:
    (world / "recipe" / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert message(world, "+recipe=bytes")


def test_a_recipe_that_overrides_an_unknown_group_is_named(world: Path) -> None:
    (world / "recipe" / "wrong.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /algorihtm: ppo\n"
    )
    assert message(world, "+recipe=wrong") == (
        "recipe/wrong.yaml: algorihtm is not a setting; did you mean algorithm?"
    )


def test_an_interpolation_that_leads_nowhere_is_named_by_its_key(world: Path) -> None:
    assert (
        message(world, "name=${nope.x}")
        == "name: cannot resolve ${nope.x}: Interpolation key 'nope.x' not found"
    )


def test_an_unknown_resolver_is_named_by_its_key(world: Path) -> None:
    assert message(world, "name=${nope:3}").startswith("name: cannot resolve ${nope:3}: ")


def test_an_interpolation_that_does_not_end_is_one_line(world: Path) -> None:
    (world / "recipe" / "open.yaml").write_text("# @package _global_\nname: ${seed\n")
    assert message(world, "+recipe=open").startswith("name: ")


def test_a_circle_of_interpolations_is_one_line(world: Path) -> None:
    assert message(world, "name=${extra}", "extra=${name}").startswith("name: cannot resolve ${extra}: ")


def test_a_missing_environment_variable_is_named(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGL_TEST_KEY", raising=False)
    assert message(world, "api_key=${oc.env:AGL_TEST_KEY}") == (
        "api_key: cannot resolve ${oc.env:AGL_TEST_KEY}: Environment variable 'AGL_TEST_KEY' not found"
    )


def test_an_unknown_root_file_says_where_it_was_looked_for(world: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no nothing\.yaml in"):
        compose("nothing", folders=[world])


def test_a_folder_with_spaces_and_quotes_is_searched(world: Path, tmp_path: Path) -> None:
    more = tmp_path / "it's my, folder"
    (more / "recipe").mkdir(parents=True)
    (more / "recipe" / "mine.yaml").write_text("# @package _global_\nname: mine\n")
    assert compose("train", ["+recipe=mine"], folders=[world, more]).values["name"] == "mine"


def test_the_search_path_is_built_in_then_local_then_given(in_folder: Path) -> None:
    given = in_folder / "given"
    given.mkdir()
    assert search_folders() == [built_in_folder("configs")]
    (in_folder / "configs").mkdir()
    assert search_folders(given) == [built_in_folder("configs"), in_folder / "configs", given]


def test_a_given_folder_that_is_not_there_is_an_error(in_folder: Path) -> None:
    with pytest.raises(ConfigError, match="--config-dir nowhere is not a folder"):
        search_folders(Path("nowhere"))


def test_a_given_file_that_a_built_in_one_would_hide_is_an_error(in_folder: Path) -> None:
    (in_folder / "given").mkdir()
    (in_folder / "given" / "train.yaml").write_text("name: mine\n")
    with pytest.raises(ConfigError, match=r"given/train\.yaml would be ignored: that name is taken"):
        search_folders(Path("given"))


def test_a_local_file_that_a_built_in_one_hides_is_a_warning(
    in_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (in_folder / "configs").mkdir()
    (in_folder / "configs" / "train.yaml").write_text("name: mine\n")
    search_folders()
    assert "configs/train.yaml is ignored" in caplog.text


def test_a_local_recipe_folder_comes_before_ours(in_folder: Path) -> None:
    (in_folder / "recipes" / "mine").mkdir(parents=True)
    assert recipe_dir("mine") == str(in_folder / "recipes" / "mine")
    with pytest.raises(
        ConfigError, match="there is no recipe folder nowhere: looked for recipes/nowhere and"
    ):
        recipe_dir("nowhere")


def test_saved_settings_come_back_with_overrides_on_top(world: Path) -> None:
    first = compose("train", ["+recipe=sql", "algorithm.group_size=4"], folders=[world])
    save_settings(first, world / "settings.yaml")
    again = load_settings(world / "settings.yaml", ["algorithm.learning_rate=0.5"])
    assert again.values["run_dir"] == first.values["run_dir"]
    assert again.values["algorithm"] == {**first.values["algorithm"], "learning_rate": 0.5}


def test_a_misspelt_override_of_saved_settings_names_the_nearest(world: Path) -> None:
    save_settings(compose("train", ["+recipe=sql"], folders=[world]), world / "settings.yaml")
    with pytest.raises(
        ConfigError, match=r"algorithm\.group_sizee is not a setting; did you mean algorithm\.group_size"
    ):
        load_settings(world / "settings.yaml", ["algorithm.group_sizee=3"])


def test_settings_that_are_not_there_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run to go on with in"):
        load_settings(tmp_path / "settings.yaml")


def test_a_secret_that_was_not_saved_must_be_given_again(world: Path) -> None:
    first = compose("train", ["+recipe=sql", "api_key=sk-123456"], folders=[world])
    save_settings(first, world / "settings.yaml")
    with pytest.raises(ConfigError, match="api_key is a secret and was not saved; give it again: api_key="):
        load_settings(world / "settings.yaml")
    assert load_settings(world / "settings.yaml", ["api_key=sk-123456"]).values["api_key"] == "sk-123456"


def test_another_option_of_a_group_leaves_out_what_the_recipe_says_and_it_does_not_have() -> None:
    settings = compose("train", ["+recipe=ppo_sql", "algorithm=baseline"]).values
    assert settings["algorithm"]["max_tokens"] == 64
    assert "iterations" not in settings["algorithm"]
    assert compose("train", ["+recipe=ppo_sql", "algorithm=grpo"]).values["algorithm"]["iterations"] == 40


def test_what_the_command_line_says_of_an_option_that_does_not_have_it_stays_and_is_refused() -> None:
    settings = compose(
        "train", ["+recipe=ppo_sql", "algorithm=baseline", "algorithm.iterations=3", "~learner"]
    )
    assert settings.values["algorithm"]["iterations"] == 3
    with pytest.raises(ConfigError, match=r"algorithm\.iterations is not a setting"):
        check(settings)


def test_a_setting_can_be_the_text_of_a_file_and_is_saved_as_that_text(world: Path, tmp_path: Path) -> None:
    prompt = tmp_path / "my prompt.txt"
    prompt.write_text("Answer {task}\n\nwith ${care}\n", encoding="utf-8")
    escaped = str(prompt).replace(" ", r"\ ")
    settings = compose("train", [f"name=${{file:{escaped}}}"], folders=[world])
    assert settings.values["name"] == "Answer {task}\n\nwith ${care}"
    save_settings(settings, tmp_path / "settings.yaml")
    prompt.unlink()
    assert load_settings(tmp_path / "settings.yaml").values["name"] == "Answer {task}\n\nwith ${care}"


def test_a_file_that_is_not_there_is_named(world: Path) -> None:
    with pytest.raises(ConfigError, match=r"name: .*the file /no/such\.txt cannot be read"):
        compose("train", ["name=${file:/no/such.txt}"], folders=[world])


OWN_OPTIONS = """# @package _global_
options:
  algorithm:
    ppo: {group_size: 7}
"""


def test_what_a_recipe_says_of_an_option_that_it_does_not_choose_holds_when_that_is_chosen(
    world: Path,
) -> None:
    (world / "recipe" / "own.yaml").write_text(OWN_OPTIONS)

    def group_size(*overrides: str) -> object:
        settings = compose("train", ["+recipe=own", *overrides], folders=[world]).values
        assert "options" not in settings
        return settings["algorithm"]["group_size"]

    assert group_size("algorithm=ppo") == 7
    assert group_size("algorithm=ppo", "algorithm.group_size=3") == 3
    assert group_size() == compose("train", [], folders=[world]).values["algorithm"]["group_size"]


def test_an_option_of_a_recipe_that_does_not_exist_is_named(world: Path) -> None:
    (world / "recipe" / "own.yaml").write_text(OWN_OPTIONS.replace("ppo:", "pop:"))
    assert message(world, "+recipe=own") == "options.algorithm.pop: there is no algorithm=pop"
    (world / "recipe" / "own.yaml").write_text("# @package _global_\noptions: {algorithm: ppo}\n")
    assert message(world, "+recipe=own").startswith("options must be written as {GROUP: {OPTION:")


def test_an_empty_mapping_that_would_empty_nothing_says_how_to_take_keys_out() -> None:
    recipe = "+recipe=gepa_sql"
    with pytest.raises(
        ConfigError, match=r"resources=\{\} would leave all of it as it is; .*: ~resources\.prompt_"
    ):
        compose("train", [recipe, "resources={}"])
    assert compose("train", [recipe, "~resources.prompt_template"]).values["resources"] == {}
    assert compose("train", ["resources={}"]).values["resources"] == {}
