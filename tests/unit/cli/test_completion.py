"""What a shell offers: recipes, options, settings and runs; bash gets its words put together."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

import pytest

from agl.cli.completion import answering_bash, candidates, complete_runs, config_folders, joined


@pytest.fixture
def folders(in_folder: Path) -> list[Path]:
    """Two folders of config groups; the second has a recipe of one's own."""
    files = {
        "own/train.yaml": "defaults:\n  - algorithm: ppo\n  - data: jsonl\n  - _self_\nseed: 0\n",
        "own/algorithm/ppo.yaml": "_target_: a.PPO\niterations: 40   # cycles\ngamma: 1.0\n",
        "own/algorithm/apo.yaml": "_target_: a.APO\nbeam_width: 4\nbudget:\n  max_calls: null\n",
        "own/data/jsonl.yaml": "_target_: d.Files\ntrain: ???\n",
        "own/recipe/ppo_sql.yaml": "name: ppo_sql\n",
        "configs/recipe/mine.yaml": "defaults:\n  - override /algorithm: apo\n",
    }
    for name, text in files.items():
        path = in_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [in_folder / "own", in_folder / "configs"]


@pytest.mark.parametrize(
    ("word", "given", "offered"),
    [
        ("", [], ["+recipe=mine", "+recipe=ppo_sql"]),
        ("+rec", [], ["+recipe=mine", "+recipe=ppo_sql"]),
        ("+recipe=", [], ["+recipe=mine", "+recipe=ppo_sql"]),
        ("+recipe=p", [], ["+recipe=ppo_sql"]),
        ("alg", [], ["algorithm=apo", "algorithm=ppo"]),
        ("algorithm=p", [], ["algorithm=ppo"]),
        ("algorithm.", [], ["algorithm.iterations=", "algorithm.gamma="]),
        ("algorithm.it", [], ["algorithm.iterations="]),
        ("algorithm.", ["algorithm=apo"], ["algorithm.beam_width=", "algorithm.budget="]),
        ("algorithm.b", ["+recipe=mine"], ["algorithm.beam_width=", "algorithm.budget="]),
        ("algorithm.b", ["+recipe=mine", "algorithm=ppo"], []),
        ("algorithm.b", ["+recipe=no_such"], []),
        ("nothing.", [], []),
        ("../x=", [], []),
        ("recipe", [], []),
        ("seed=", [], []),
    ],
)
def test_a_word_is_completed_to_what_it_may_become(
    folders: list[Path], word: str, given: list[str], offered: list[str]
) -> None:
    assert candidates(word, given, folders) == offered


def test_agls_own_groups_and_those_of_the_folder_are_offered(folders: list[Path]) -> None:
    found = candidates("+recipe=", [], config_folders())
    assert "+recipe=ppo_sql" in found
    assert "+recipe=mine" in found
    assert candidates("algorithm.iter", ["algorithm=grpo"], config_folders()) == ["algorithm.iterations="]


def test_runs_are_offered_by_name_the_newest_first(in_folder: Path) -> None:
    for name in ("2026-01-01_a", "2026-02-01_b", "other"):
        (in_folder / "runs" / name).mkdir(parents=True)
        (in_folder / "runs" / name / "settings.yaml").touch()
    (in_folder / "runs" / "2026-03-01_no_run").mkdir()
    assert complete_runs("2026") == ["2026-02-01_b", "2026-01-01_a"]
    assert complete_runs("") == ["other", "2026-02-01_b", "2026-01-01_a"]


@pytest.mark.parametrize(
    ("words", "current", "whole", "place"),
    [
        (["agl", "train", "+recipe", "=", "pp"], 4, ["agl", "train", "+recipe=pp"], 2),
        (["agl", "train", "+recipe", "="], 3, ["agl", "train", "+recipe="], 2),
        (["agl", "train", "algorithm", "=", "apo", "x"], 5, ["agl", "train", "algorithm=apo", "x"], 3),
        (["agl", "ls", "--store-url", "http", ":", "//h"], 5, ["agl", "ls", "--store-url", "http://h"], 3),
        (["agl", "train", ""], 2, ["agl", "train", ""], 2),
        (["agl", "train"], 2, ["agl", "train"], 2),
    ],
)
def test_words_that_bash_took_apart_are_put_together(
    words: list[str], current: int, whole: list[str], place: int
) -> None:
    assert joined(words, current) == (whole, place)


@pytest.mark.parametrize(
    ("words", "current", "printed"),
    [
        ("agl\ntrain\n+recipe\n=\npp", "4", "ppo_sql\n"),
        ("agl\ntrain\n+recipe\n=", "3", "ppo_sql\n"),
        ("agl\ntrain\n+rec", "2", "+recipe=ppo_sql\n"),
    ],
)
def test_bash_is_given_what_follows_the_sign(
    capsys: pytest.CaptureFixture[str], words: str, current: str, printed: str
) -> None:
    environ: MutableMapping[str, str] = {
        "_AGL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": current,
    }

    def answers() -> None:
        print("+recipe=ppo_sql")  # noqa: T201 - as the app does
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        answering_bash(answers, environ)
    assert capsys.readouterr().out == printed
    assert environ["COMP_CWORD"] == "2"


@pytest.mark.parametrize("environ", [{}, {"_AGL_COMPLETE": "complete_zsh", "COMP_WORDS": "x"}])
def test_others_run_the_app_as_it_is(environ: dict[str, str]) -> None:
    ran: list[bool] = []
    answering_bash(lambda: ran.append(True), environ)
    assert ran == [True]
