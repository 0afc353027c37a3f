"""Load the user's code by name, and say exactly what is wrong when that fails."""

import sys
from pathlib import Path

import pytest

from agl.agents.load import load_object
from agl.errors import ConfigError


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "prices.py").write_text("PRICE = 7\n")
    (folder / "agent.py").write_text(
        "from .prices import PRICE\n\ndef buy():\n    from . import prices\n    return prices.PRICE\n"
    )
    (folder / "deep" / "agent.py").write_text(
        "from ..prices import PRICE\n\ndef buy():\n    return PRICE + 1\n"
    )
    return folder


def test_a_dotted_module_is_imported() -> None:
    assert load_object("json.decoder:JSONDecoder.decode").__name__ == "decode"  # type: ignore[attr-defined]


def test_a_file_in_a_package_may_import_relatively_at_any_depth(package: Path) -> None:
    assert load_object(f"{package}/agent.py:buy")() == 7  # type: ignore[operator]
    assert load_object(f"{package}/deep/agent.py:buy")() == 8  # type: ignore[operator]


def test_the_same_file_gives_the_same_module(package: Path, tmp_path: Path) -> None:
    assert load_object(f"{package}/agent.py:buy") is load_object(f"{package}/deep/../agent.py:buy")
    plain = tmp_path / "plain.py"
    plain.write_text("VALUE = object()\n")
    assert load_object(f"{plain}:VALUE") is load_object(f"{plain}:VALUE")


def test_packages_of_the_same_name_do_not_meet(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "shop"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    (other / "agent.py").write_text("def buy():\n    return 'other'\n")
    assert load_object(f"{other}/agent.py:buy")() == "other"  # type: ignore[operator]
    assert load_object(f"{package}/agent.py:buy")() == 7  # type: ignore[operator]
    assert "shop" not in sys.modules


def test_a_plain_file_finds_its_siblings_and_leaves_the_path_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "sibling_of_agent.py").write_text("VALUE = 3\n")
    (tmp_path / "agent.py").write_text("import sibling_of_agent\nVALUE = sibling_of_agent.VALUE\n")
    before = list(sys.path)
    assert load_object(f"{tmp_path}/agent.py:VALUE") == 3
    assert sys.path == before
    del sys.modules["sibling_of_agent"]


def test_a_file_beside_the_caller_needs_no_slash(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "near.py").write_text("VALUE = 3\n")
    monkeypatch.chdir(tmp_path)
    assert load_object("near.py:VALUE") == 3


@pytest.mark.parametrize("target", ["agent.py", "json", ":name", "json:", ""])
def test_a_target_without_both_parts_is_refused(target: str) -> None:
    with pytest.raises(ConfigError, match="names no object"):
        load_object(target)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nowhere\.py"):
        load_object(f"{tmp_path}/nowhere.py:x")


def test_a_missing_attribute_is_named_with_the_nearest_or_what_there_is(package: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.py has no 'bye'; did you mean 'buy'\?"):
        load_object(f"{package}/agent.py:bye")
    with pytest.raises(ConfigError, match=r"has no 'xxxxxxx'; it defines buy"):
        load_object(f"{package}/agent.py:xxxxxxx")


def test_a_missing_module_is_told_from_a_missing_requirement(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no module 'no_such_package'"):
        load_object("no_such_package.inner:x")
    with pytest.raises(ConfigError, match=r"there is no module 'json\.nothing'"):
        load_object("json.nothing:x")
    (tmp_path / "needy.py").write_text("import no_such_requirement\n")
    with pytest.raises(
        ConfigError, match="it needs the module 'no_such_requirement', which is not installed"
    ):
        load_object(f"{tmp_path}/needy.py:x")


def test_an_import_that_fails_is_named_with_its_cause_and_place_and_can_be_tried_again(package: Path) -> None:
    bad = package / "bad.py"
    bad.write_text("x = 1\nraise ValueError('first line\\nsecond line')\n")
    with pytest.raises(
        ConfigError, match=r"bad\.py cannot be imported: ValueError: first line \(.*bad\.py:2\)"
    ) as raised:
        load_object(f"{bad}:x")
    assert isinstance(raised.value.__cause__, ValueError)
    bad.write_text("x = 'repaired, and of another length'\n")
    assert load_object(f"{bad}:x") == "repaired, and of another length"


def test_a_syntax_error_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (:\n")
    with pytest.raises(ConfigError, match=r"broken\.py cannot be imported: SyntaxError: .*line 1"):
        load_object(f"{tmp_path}/broken.py:x")


def test_a_failing_package_leaves_nothing_half_loaded(package: Path) -> None:
    before = set(sys.modules)
    (package / "__init__.py").write_text("from . import prices\nraise RuntimeError('not yet')\n")
    with pytest.raises(ConfigError, match="RuntimeError: not yet"):
        load_object(f"{package}/agent.py:buy")
    assert not [name for name in set(sys.modules) - before if name.startswith("_agl_")]
