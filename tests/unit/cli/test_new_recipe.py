"""The folder of a new recipe: legal names, whole or not at all, nothing overwritten, no placeholder left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from agl.cli.new_recipe import check_name, write_recipe
from agl.cli.starters import Starter
from agl.errors import ConfigError

TEMPLATES = Path(__file__).parents[3] / "recipes" / "starter"
FILES = [
    ".gitignore",
    "README.md",
    "agent.py",
    "configs/recipe/mine.yaml",
    "data/test.jsonl",
    "data/train.jsonl",
    "data/val.jsonl",
    "grader.py",
    "test_recipe.py",
]


@pytest.mark.parametrize("name", ["a", "tickets", "my_agent_2", "Sql", "x" * 64])
def test_a_name_that_can_be_imported_is_taken(name: str) -> None:
    check_name(name, taken=["ppo_sql"])


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("my-agent", "my_agent"),
        ("my agent!", "my_agent"),
        ("2fast", "my_2fast"),
        ("class", "my_class"),
        ("con", "my_con"),
        ("LPT1", "my_LPT1"),
        ("../up", "up"),
        ("a/b", "a_b"),
        ("", "my_agent"),
        ("\u00fcber", "ber"),
        ("x" * 65, "x" * 60),
    ],
)
def test_another_name_is_refused_with_one_that_would_do(name: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=rf"for example {instead}$"):
        check_name(name, taken=[])
    check_name(instead, taken=[])


def test_a_recipe_of_agls_own_is_not_hidden() -> None:
    with pytest.raises(ConfigError, match="agl has a recipe ppo_sql itself"):
        check_name("ppo_sql", taken=["ppo_sql"])


@pytest.mark.parametrize("starter", list(Starter))
def test_all_files_are_written_with_the_name_put_in(tmp_path: Path, starter: Starter) -> None:
    written = write_recipe(tmp_path / "mine", starter, templates=TEMPLATES)
    assert [path.relative_to(tmp_path / "mine").as_posix() for path in written] == FILES
    text = "".join(path.read_text(encoding="utf-8") for path in written)
    for placeholder in ("STARTER", "AGENT_WORDS", "INSTALL_LINE", "PYTHON,"):
        assert placeholder not in text
    settings = yaml.safe_load((tmp_path / "mine/configs/recipe/mine.yaml").read_text())
    assert settings["name"] == "mine"
    assert ("command" in settings["agent"]) == (starter is Starter.COMMAND)
    compile((tmp_path / "mine/agent.py").read_text(), "agent.py", "exec")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert write_recipe(tmp_path / "mine", Starter.OPENAI, templates=TEMPLATES)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="mine is there already"):
        write_recipe(tmp_path / "mine", Starter.OPENAI, templates=TEMPLATES)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(ConfigError, match="mine is there already"):
        write_recipe(tmp_path / "mine", Starter.OPENAI, templates=TEMPLATES)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made: No such file or directory"):
        write_recipe(tmp_path / "nowhere" / "mine", Starter.OPENAI, templates=TEMPLATES)
    broken = tmp_path / "templates"
    (broken / "folder").mkdir(parents=True)
    (broken / "folder" / "a").symlink_to(tmp_path / "gone")
    (broken / "folder" / "README.md").write_text("x")
    write_recipe(tmp_path / "mine", Starter.OPENAI, templates=broken)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "templates"]


def test_the_tasks_are_json_with_a_message_and_a_queue(tmp_path: Path) -> None:
    write_recipe(tmp_path / "mine", Starter.FUNCTION, templates=TEMPLATES)
    for split, size in (("train", 160), ("val", 64), ("test", 64)):
        lines = (tmp_path / f"mine/data/{split}.jsonl").read_text().splitlines()
        assert len(lines) == size
        assert all(set(json.loads(line)) == {"message", "queue"} for line in lines)
