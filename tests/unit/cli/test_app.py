"""The command line: what it offers, and one line and an exit code for whatever goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Agl

import agl as package


def test_the_version_is_printed(agl: Agl) -> None:
    assert agl("--version") == (0, f"agl {package.__version__}\n", "")


def test_help_lists_the_commands_that_there_are(agl: Agl) -> None:
    code, out, _ = agl("--help")
    assert code == 0
    assert "train" in out
    for option in ("--cfg", "--config-dir", "--run-dir", "--resume"):
        assert option in agl("train", "--help")[1]


@pytest.mark.parametrize("command", [[], ["train"], ["store"]])
def test_the_examples_of_every_help_are_right(agl: Agl, command: list[str]) -> None:
    _, out, _ = agl(*command, "--help")
    examples = [
        line.split("  ")[0].split() for line in map(str.strip, out.splitlines()) if line.startswith("agl ")
    ]
    assert examples
    for _, *arguments in examples:
        if "--resume" in arguments:  # there is no run to go on with
            assert arguments == ["train", "--resume"]
        elif "--help" not in arguments:
            assert agl(*arguments, "--cfg")[0] == 0, arguments


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", "--bogus"], "agl train: no such option: --bogus (see agl train --help)"),
        (["trane"], "agl: no such command 'trane'."),
        (["--bogus"], "agl: no such option: --bogus (see agl --help)"),
        (["store", "gc", "--run-dri", "x"], "agl store gc: no such option: --run-dri"),
        (["ls", "--limit", "0"], "agl ls: invalid value for '--limit': "),
        (["ls", "--limit"], "option '--limit' requires an argument"),
        (["ls", "runs", "more"], "agl ls: got unexpected extra argument"),
    ],
)
def test_what_the_parser_does_not_understand_is_one_line_and_exit_code_two(
    agl: Agl, arguments: list[str], line: str
) -> None:
    code, out, err = agl(*arguments)
    assert (code, out) == (2, "")
    assert line in err
    assert err.startswith("agl: agl")
    assert err.count("\n") == 1


def test_no_command_at_all_gets_help(agl: Agl) -> None:
    code, out, err = agl()
    assert code == 2
    assert "agl train +recipe=ppo_sql" in out + err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["algorithm.group_sizee=8"],
            "algorithm.group_sizee is not a setting; did you mean algorithm.group_size?",
        ),
        (["algorithm=grpoo"], "there is no algorithm called grpoo; did you mean grpo?"),
        (["+recipe=ppo_sqll"], "there is no recipe called ppo_sqll; did you mean ppo_sql?"),
        (["recipe=ppo_sql"], "recipe=ppo_sql: write +recipe=ppo_sql"),
        (["seed"], "seed: not an override; write key=value"),
        (["seed=[1"], "seed=[1: not an override; write key=value"),
        ([], "no value for "),
        (["+recipe=ppo_sql", "seed=abc"], 'seed is "abc": input should be a valid integer'),
        (
            ["+recipe=ppo_sql", "algorithm.iterations='8'"],
            'algorithm.iterations is "8": input should be a valid integer',
        ),
        (["+recipe=ppo_sql", "+algorithm.group_sizee=8"], "did you mean algorithm.group_size?"),
        (["+recipe=ppo_sql", "+sed=8"], "did you mean seed?"),
        (["+recipe=ppo_sql", "name=${nothing}"], "name: cannot resolve ${nothing}"),
        (["+recipe=ppo_sql", "store._target_=os.system"], "which is not trusted; add os to `trusted`"),
        (["+recipe=ppo_sql", "data.arguments.sede=8"], "data.arguments.sede is not a setting; did you mean"),
        (["+recipe=ppo_sql", "metrics.console=loud"], "input should be 'auto' or 'plain' or 'rich' or 'off'"),
        (["--config-dir", "nowhere"], "--config-dir nowhere is not a folder"),
        (["--resume"], "no run to resume"),
        (["--resume", "nothing"], "there is no run nothing"),
        (["--resume", "--run-dir", "x"], "leave --run-dir and --config-dir out"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_two(agl: Agl, arguments: list[str], reason: str) -> None:
    code, out, err = agl("train", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("agl: ")
    assert err.count("\n") == 1
    assert reason.replace("'auto' or 'plain' or 'rich' or 'off'", "'auto'") in err
    assert not Path("runs").exists()


def test_broken_yaml_of_a_recipe_is_one_line_with_file_and_line(agl: Agl, recipes: Path) -> None:
    (recipes / "recipe" / "broken.yaml").write_text("# @package _global_\nname: [a\nseed: 1\n")
    code, _, err = agl("train", "--config-dir", recipes, "+recipe=broken")
    assert code == 2
    assert err.startswith(f"agl: {recipes}/recipe/broken.yaml:3: not valid YAML: ")
    assert err.count("\n") == 1


def test_a_run_that_stops_itself_is_exit_code_one_with_its_first_cause(agl: Agl, recipes: Path) -> None:
    code, _, err = agl("train", "--config-dir", recipes, "+recipe=fake", "ending=stopped")
    assert code == 1
    assert err.startswith("agl: too many bad rollouts")
    assert err.count("\n") == 1


def test_an_unforeseen_error_is_one_line_that_says_where_the_traceback_is(agl: Agl, recipes: Path) -> None:
    code, _, err = agl("train", "--config-dir", recipes, "+recipe=fake", "ending=crash", "--run-dir", "here")
    assert (code, err) == (1, "agl: RuntimeError: unforeseen (traceback in here/agl.log)\n")
    assert "Traceback (most recent call last)" in Path("here/agl.log").read_text()


def test_an_interrupt_is_exit_code_130_and_says_how_to_go_on(agl: Agl, recipes: Path) -> None:
    code, _, err = agl(
        "train", "--config-dir", recipes, "+recipe=fake", "ending=interrupt", "--run-dir", "here"
    )
    assert (code, err) == (130, "agl: interrupted (go on with: agl train --resume here)\n")


def test_a_missing_extra_is_exit_code_two(agl: Agl, recipes: Path) -> None:
    code, _, err = agl("train", "--config-dir", recipes, "+recipe=fake", "ending=extra")
    assert (code, err) == (2, 'agl: Flying needs the "wings" extra: pip install "agl[wings]"\n')
    assert not Path("runs").exists()
