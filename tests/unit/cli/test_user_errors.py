"""What users get wrong: one line on standard error that says what to do, exit code 1 or 2, and nothing left behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Agl
from file_modes import obeyed_modes
from recorded_folder import recorded_folder

Spoil = Callable[[Path], None]

STORE, SETTINGS = "runs/one/store.sqlite", "runs/one/settings.yaml"
EVALUATION = "_target_: agl.launch.evaluation.EvaluationRun\nname: two\n"
GRADER = ("--grader", "mine.py:grade")
ESCAPE = "a\x1b[31mb\x07"
AT_URL = ("--store-url", "http://127.0.0.1:9")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the run ``one``: rollouts that succeeded, one that failed, one that waits."""
    folder = tmp_path_factory.mktemp("recorded")
    asyncio.run(recorded_folder(folder, [0, 1, 2], waiting=1))
    (folder / "runs/one/agl.log").write_text("begun\n")
    (folder / "there").write_text("old")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "broken.py").write_text("def grade(:\n")
    (folder / "empty.jsonl").touch()
    (folder / "list.jsonl").write_text("[]\n")
    (folder / "half.jsonl").write_text('{"record": "run"')
    return folder


@pytest.fixture
def world(recorded: Path, in_folder: Path) -> Path:
    """A copy of it for one test, in which the test runs."""
    shutil.copytree(recorded, in_folder, dirs_exist_ok=True)
    return in_folder


def files_of(folder: Path) -> dict[str, bytes | None]:
    """Everything below the folder, files with what is in them."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refusal(agl: Agl, world: Path, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Give the command; return its exit code and its one line, all else being as it must be."""
    before = files_of(world)
    code, out, err = agl(*arguments)
    assert out == ""
    assert err.startswith("agl: ")
    assert err.endswith("\n")
    assert err[:-1].isprintable(), err
    assert files_of(world) == before
    return code, err.removeprefix("agl: ").rstrip("\n")


def written(name: str, content: str | bytes) -> Spoil:
    """Put this into the file, and into its folders what makes them runs."""

    def write(world: Path) -> None:
        file = world / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def evaluation(content: str | bytes) -> Spoil:
    """The report of an evaluation ``two``."""

    def write(world: Path) -> None:
        written("runs/two/settings.yaml", EVALUATION)(world)
        written("runs/two/evaluation.json", content)(world)

    return write


def another_database(world: Path) -> None:
    (world / STORE).unlink()
    with sqlite3.connect(world / STORE) as database:
        database.execute("CREATE TABLE mine (a)")
    database.close()


def half_a_database(world: Path) -> None:
    content = (world / STORE).read_bytes()
    (world / STORE).write_bytes(content[: len(content) // 2])


def a_folder_for_a_store(world: Path) -> None:
    (world / STORE).unlink()
    (world / STORE).mkdir()


def no_runs(world: Path) -> None:
    shutil.rmtree(world / "runs")


ARGUMENTS: list[tuple[tuple[str, ...], int, str]] = [
    (("ls", "rollout"), 2, "agl ls: 'rollout' is none of runs, rollouts, workers, resources; did you mean"),
    (("ls", "--status", "failed"), 2, "--status chooses among rollouts: agl ls rollouts --status"),
    (("ls", "rollouts", "--status", "bad"), 2, "--status 'bad' is none of pending, preparing, running"),
    (("ls", "rollouts", "--mode", "bad"), 2, "--mode 'bad' is none of train, val, test"),
    (("ls", "rollouts", "--order", "bad"), 2, "--order 'bad' is none of newest, oldest, reward, lowest"),
    (("ls", "rollouts", "--run", "lost"), 2, "--run lost: there is no such run in runs/one/store.sqlite"),
    (("ls", "rollouts", "--min-reward", "nan"), 2, "--min-reward nan: a number"),
    (("ls", "rollouts", "--failed", "X", "--status", "running"), 2, "--failed X is about failed rollouts"),
    (("ls", "--limit", "-1"), 2, "agl ls: invalid value for '--limit'"),
    (("ls", "--limti", "3"), 2, "agl ls: no such option: --limti"),
    (("ls", "--run-dir", "lost"), 2, "there is no run lost: neither lost nor runs/lost has a store.sqlite"),
    (("ls", "--run-dir", "mine.py"), 1, "mine.py is not a store's file (file is not a database): name"),
    (("ls", "--run-dir", "one", *AT_URL), 2, "--run-dir one and --store-url http://127.0.0.1:9 name two"),
    (("ls", "--store-url", "nonsense"), 2, "store.url=nonsense: the address of an `agl store` such as http"),
    (("show", "lost"), 2, "no rollout, run, resources, worker or attempt is called 'lost' in any run under"),
    (
        ("show", "one-"),
        2,
        "; did you mean one-waits-0 or one-2 or one-1? (agl ls rollouts lists what is there)",
    ),
    (("show", ""), 2, "is called '' in any run under runs"),
    (("show", "a" * 300), 1, f"{'a' * 300}/settings.yaml: File name too long"),
    (("show", "one-0", "--attempt", "9"), 2, "--attempt 9: rollout one-0 has no such attempt; it has 1 ("),
    (("show", "one-0", "--metric", "x"), 2, "--metric x: numbers are of runs; leave it out"),
    (("show", "one", "--metric", "x"), 2, "--metric x: the run one has no such number"),
    (("show", "one", "--attempt", "1"), 2, "--attempt 1: that id is of a run"),
    (("trace",), 2, "agl trace: missing argument 'ROLLOUT' (see agl trace --help)"),
    (("trace", "one"), 2, "no rollout or attempt is called 'one'"),
    (("logs", "one", "--tail", "-1"), 2, "agl logs: invalid value for '--tail' / '-n'"),
    (("logs", "one-resources"), 2, "no rollout, attempt or run is called 'one-resources'"),
    (("cancel",), 2, "agl cancel takes either ids of rollouts, or --run RUN"),
    (("cancel", "one-0", "--run", "one"), 2, "agl cancel takes either ids of rollouts, or --run RUN"),
    (("cancel", "--run", "one"), 2, "1 rollout of run one (1 pending) would be cancelled: add --yes"),
    (
        ("cancel", "one-waits-1"),
        2,
        "no rollout is called 'one-waits-1' in runs/one/store.sqlite; did you mean",
    ),
    (("cancel", "one-0", "--run-dir", "mine.py"), 1, "mine.py is not a store's file: name a run, a store's"),
    (("retry", "one-0"), 2, "rollout one-0 has succeeded: there is nothing to retry (agl replay runs it"),
    (("retry", "one-1", "seed=1"), 2, "seed=1: settings are for --here"),
    (("retry", "one-1", "--here", "nope=1"), 2, "nope is not a setting; there is agent"),
    (("replay", "one-waits-0"), 2, "rollout one-waits-0 is pending: wait for its end, or end it with agl"),
    (("replay", "one-0", "--from-call", "5"), 2, "--from-call 5: rollout one-0 has 0 recorded calls; give 1"),
    (("replay", "one-0", "--resources", "lost"), 2, "there is no run lost and no resources of that id in"),
    (("replay", "one-0", "agent.target=lost.py:x"), 2, "agent: there is no file lost.py (looked at "),
    (("regrade",), 2, "agl regrade: missing option '--grader' (see agl regrade --help)"),
    (("regrade", "--grader", "mine"), 2, "'mine' names no object: write 'package.module:name'"),
    (
        ("regrade", "--grader", "mine.py:marks"),
        2,
        "mine.py has no 'marks'; it defines SilentProxy, agent, grade",
    ),
    (("regrade", "--grader", "broken.py:grade"), 2, "broken.py cannot be imported: SyntaxError: "),
    (("regrade", *GRADER, "--set", "x"), 2, "--set x: write NAME=VALUE"),
    (("regrade", *GRADER, "--set", "x=1"), 2, "settings.x is not a parameter of grade"),
    (("regrade", *GRADER, "lost"), 2, "no rollout or run is called 'lost' in runs/one/store.sqlite"),
    (("diff", "one"), 2, "agl diff: missing argument 'B' (see agl diff --help)"),
    (("diff", "", "one"), 2, "no resources or run is called ''"),
    (("diff", "latin.txt", "there"), 2, "latin.txt cannot be read as text: 'utf-8' codec"),
    (("diff", "one", "one", "--limit", "3"), 2, "--limit is for --evaluate: without it nothing is run"),
    (("export",), 2, "say what: agl export what=KIND, one of policy, prompts, rollouts, spans, samples, sft"),
    (
        ("export", "what=rolouts"),
        2,
        "agl export: what 'rolouts' is none of policy, prompts, rollouts, spans,",
    ),
    (("export", "what=rollouts", "format=csv"), 2, "format is \"csv\": input should be 'jsonl' or 'parquet'"),
    (("export", "what=rollouts", "limit=-1"), 2, "limit=-1 must be at least 1, or null for all"),
    (("export", "what=rollouts", "min_reward=nan"), 2, "min_reward=nan must be a number"),
    (("export", "what=sft", "min_reward=nan"), 2, "min_reward=nan must be a number"),
    (
        ("export", "what=sft", "run_id=lost"),
        1,
        "no succeeded train rollout with min_reward=1 and run_id=lost",
    ),
    (("export", "what=rollouts", "--cfg", "--json"), 2, "--cfg prints settings as YAML, and --json is for"),
    (
        ("export", "what=rollouts", "--out", "there"),
        2,
        "there is there already: give another --out, or --force",
    ),
    (("export", "what=rollouts", "--out", "there/x"), 2, "/there is not a folder"),
    (("export", "what=rollouts", "--out", "runs", "--force"), 2, "runs is a folder with other things than"),
    (("export", "what=rollouts", "--out", ".", "--force"), 2, ". is the folder that you are in: it is not"),
    (("export", "what=rollouts", "--out", "a" * 300), 2, "cannot be made: File name too long"),
    (("export", "what=policy"), 2, "runs/one has no policy: neither policy/ nor a checkpoint; what=prompts"),
    (("export", "what=rollouts", "--config-dir", "lost"), 2, "--config-dir lost is not a folder"),
    (("import", "lost.jsonl"), 2, "there is no file lost.jsonl to import"),
    (("import", "latin.txt"), 2, "latin.txt:1: not JSON: 'utf-8' codec can't decode byte 0xe9"),
    (("import", "empty.jsonl"), 1, "nothing to import: empty.jsonl has no record that can be kept"),
    (("import", "list.jsonl"), 2, "list.jsonl:1: a list and not a JSON object"),
    (("import", "half.jsonl"), 2, "half.jsonl:1: not JSON: "),
    (("import", "half.jsonl", "--run-dir", "there"), 1, "there is not a store's file: name a run"),
    (("init",), 2, "agl init: missing argument 'NAME' (see agl init --help)"),
    (("init", "runs"), 2, "runs is there already: choose another name, or move it out of the way"),
    (("init", "1st"), 2, "'1st' cannot be the name of a recipe: take letters, digits and _"),
    (("init", "class"), 2, "'class' cannot be the name of a recipe"),
    (("init", "../up"), 2, "'../up' cannot be the name of a recipe"),
    (
        ("init", "mine", "--agent", "nope"),
        2,
        "agl init: invalid value for '--agent': 'nope' is not one of 'open",
    ),
    (("doctor", "--timeout", "nan"), 2, "--timeout nan: a number of seconds above 0"),
    (("eval", "+recipe=lost"), 2, "there is no recipe called lost; there is apo_rooms"),
    (
        ("eval", "+recipe=ppo_sql", "--fail-under", "nan"),
        2,
        "--fail-under nan: the least mean reward, a number",
    ),
    (
        ("eval", "+recipe=ppo_sql", "--resources", "lost"),
        2,
        "there is no run lost and no resources of that id",
    ),
    (
        ("eval", "+recipe=ppo_sql", "evaluation.threshold=nan"),
        2,
        "evaluation: threshold=nan must be a number",
    ),
    (("eval", "+recipe=ppo_sql", "-k", "0"), 2, "evaluation: repeats=0 must be at least 1"),
    (
        ("eval", "+recipe=ppo_sql", "--mode", "nope"),
        2,
        "evaluation: mode=nope: one of train, val, test, or null",
    ),
    (
        ("eval", "--resume", "one"),
        2,
        "runs/one is a training run: go on with it by agl train --resume runs/one",
    ),
    (("eval", "+recipe=ppo_sql", "--cfg", "--json"), 2, "--cfg prints settings as YAML, and --json is for"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "message"), ARGUMENTS, ids=[" ".join(case[0])[:60] for case in ARGUMENTS]
)
def test_a_mistake_on_the_command_line(
    agl: Agl, world: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ended, line = refusal(agl, world, arguments)
    assert message in line
    assert ended == code


NOT_A_STORE = (
    "runs/one/store.sqlite is not a store's file (file is not a database): name another run or store"
)
READING: list[tuple[str, ...]] = [
    ("ls", "rollouts"),
    ("ls", "resources"),
    ("show", "one-0"),
    ("trace", "one-0"),
    ("logs", "one-0"),
    ("cancel", "one-waits-0"),
    ("retry", "one-1"),
    ("replay", "one-0"),
    ("regrade", *GRADER),
    ("diff", "one", "one-resources"),
    ("export", "what=spans"),
]
DAMAGE: list[tuple[str, Spoil, tuple[str, ...], int, str]] = [
    *(("no database", written(STORE, b"hello " * 200), command, 1, NOT_A_STORE) for command in READING),
    ("another's", another_database, ("ls", "rollouts"), 1, "is an SQLite file of another program: give the"),
    ("half", half_a_database, ("ls", "rollouts"), 1, "runs/one/store.sqlite is damaged (database disk image"),
    (
        "half",
        half_a_database,
        ("export", "what=spans"),
        1,
        "is damaged (database disk image is malformed): name",
    ),
    (
        "empty",
        written(STORE, b""),
        ("cancel", "one-waits-0"),
        1,
        "store.sqlite is empty: whoever is to write",
    ),
    ("folder", a_folder_for_a_store, ("ls", "rollouts"), 2, "/runs has no run with records: name a run with"),
    ("none", no_runs, ("show",), 2, "/runs has no run: give an id, or a folder with a settings.yaml"),
    ("none", no_runs, ("logs",), 2, "/runs has no run: give a run's folder, or the id of a rollout"),
    (
        "none",
        no_runs,
        ("export", "what=prompts"),
        2,
        "/runs has no run with records: name a run with --run-dir",
    ),
    ("no YAML", written(SETTINGS, "a: [\n"), ("replay", "one-0"), 2, "one/settings.yaml:2: not valid YAML: "),
    ("no YAML", written(SETTINGS, "a: [\n"), ("diff", "one", "one"), 2, "one/settings.yaml cannot be read: "),
    (
        "latin",
        written(SETTINGS, b"name: \xe9\n"),
        ("replay", "one-0"),
        2,
        "settings.yaml is not UTF-8 text (inv",
    ),
    (
        "latin",
        written(SETTINGS, b"name: \xe9\n"),
        ("eval", "--resume", "one"),
        2,
        "runs/one is a training run",
    ),
    (
        "latin",
        written(SETTINGS, b"name: \xe9\n"),
        ("train", "--resume"),
        2,
        "one/settings.yaml is not UTF-8 text",
    ),
    (
        "list",
        written(SETTINGS, "- a\n"),
        ("replay", "one-0"),
        2,
        "settings.yaml is a list: settings are written",
    ),
    (
        "empty",
        written(SETTINGS, ""),
        ("train", "--resume"),
        2,
        "runs/one/settings.yaml has no _target_: nothing",
    ),
    (
        "latin",
        written("configs/recipe/mine.yaml", b"a: \xe9\n"),
        ("eval", "+recipe=mine"),
        2,
        "mine.yaml is not U",
    ),
    *(
        (
            "prompts",
            written("runs/one/prompts/best.json", content),
            command,
            1,
            "prompts/best.json is damaged: ",
        )
        for content in ("{", "[]", b"\xe9", '{"prompts": {"p": {"template": 3}}}')
        for command in (("export", "what=prompts"), ("diff", "one", "there"))
    ),
    *(
        ("report", evaluation(content), ("eval", "+recipe=ppo_sql", "--against", "two"), 2, "is damaged: ")
        for content in ("{", "[]", b"\xe9", '{"evaluated": {"tasks": 3}}')
    ),
    (
        "report",
        evaluation("{}"),
        ("eval", "+recipe=ppo_sql", "--resources", "two"),
        2,
        "runs/two is an evaluation",
    ),
    (
        "log",
        lambda world: (world / "runs/one/agl.log").unlink(),
        ("logs",),
        2,
        "runs/one has no agl.log: only",
    ),
]


@pytest.mark.parametrize(
    ("spoil", "arguments", "code", "message"),
    [case[1:] for case in DAMAGE],
    ids=[f"{case[0]}: {' '.join(case[2])}" for case in DAMAGE],
)
def test_a_damaged_file(
    agl: Agl, world: Path, spoil: Spoil, arguments: tuple[str, ...], code: int, message: str
) -> None:
    spoil(world)
    ended, line = refusal(agl, world, arguments)
    assert message in line
    assert ended == code


@pytest.mark.parametrize(
    "spoil",
    [
        written(
            "runs/one/metrics.jsonl",
            b'\xff\xfe\x00\n[1]\n"x"\n{"step": "x"}\n{"step": null, "val/reward": 1}\n',
        ),
        evaluation('{"evaluated": {"contestant": "one", "threshold": 1, "tasks": 3}}'),
        evaluation(b"\xe9"),
        written("runs/one/agl.log", b"caf\xe9 \x1b[31m\n"),
        written(STORE, b"hello " * 200),
        written(SETTINGS, b"\xe9"),
    ],
)
def test_what_can_do_without_a_damaged_file_does(agl: Agl, world: Path, spoil: Spoil) -> None:
    spoil(world)
    for arguments in (("ls",), ("show", "one"), ("show", "one", "--json"), ("logs", "one")):
        code, out, err = agl(*arguments)
        assert (code, err) == (0, ""), arguments
        assert all(sign.isprintable() or sign == "\n" for sign in out)


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", ESCAPE),
        ("show", "one", "--metric", ESCAPE),
        ("ls", "rollouts", "--run", ESCAPE),
        ("ls", "--run-dir", ESCAPE),
        ("ls", "--store-url", ESCAPE),
        ("ls", f"--{ESCAPE}"),
        ("cancel", ESCAPE),
        ("replay", "one-0", ESCAPE),
        ("regrade", *GRADER, "--set", ESCAPE),
        ("export", f"what={ESCAPE}"),
        ("export", "what=rollouts", "--out", f"there/{ESCAPE}"),
        ("import", ESCAPE),
        ("init", ESCAPE),
        ("eval", f"+recipe={ESCAPE}"),
        (ESCAPE,),
    ],
)
def test_nothing_in_a_name_reaches_the_terminal_as_a_command(
    agl: Agl, world: Path, arguments: tuple[str, ...]
) -> None:
    assert refusal(agl, world, arguments)[0] == 2


@pytest.mark.parametrize(
    ("path", "mode", "arguments", "message"),
    [
        (STORE, 0o000, ("ls", "rollouts"), "runs/one/store.sqlite: the file cannot be opened any more"),
        ("runs/one", 0o000, ("show", "one"), "runs/one/settings.yaml: Permission denied"),
        (SETTINGS, 0o000, ("replay", "one-0"), "runs/one/settings.yaml: Permission denied"),
        ("runs/one/agl.log", 0o000, ("logs",), "runs/one/agl.log: Permission denied"),
        (
            "there",
            0o000,
            ("diff", "there", "latin.txt"),
            "there cannot be read as text: [Errno 13] Permission",
        ),
        ("list.jsonl", 0o000, ("import", "list.jsonl"), "list.jsonl cannot be read: Permission denied"),
        (".", 0o500, ("export", "what=rollouts"), "rollouts.jsonl cannot be written: Permission denied"),
        (".", 0o500, ("init", "tickets"), "tickets cannot be made: Permission denied"),
        (
            "runs/one",
            0o500,
            ("cancel", "one-waits-0"),
            "store.sqlite cannot be opened as a store: attempt to",
        ),
    ],
)
def test_what_may_not_be_read_or_written(
    agl: Agl, world: Path, path: str, mode: int, arguments: tuple[str, ...], message: str
) -> None:
    before = files_of(world)
    place = world / path
    usual = place.stat().st_mode
    place.chmod(mode)
    try:
        with obeyed_modes():
            code, out, err = agl(*arguments)
    finally:
        place.chmod(usual)
    assert (code in (1, 2), out, err.count("\n")) == (True, "", 1), err
    assert message in err
    assert files_of(world) == before


def test_a_run_that_is_at_work_is_left_to_it(agl: Agl, world: Path) -> None:
    with (world / f"{STORE}.lock").open("r+") as held:
        held.truncate()
        held.write("4711\nhttp://127.0.0.1:4747\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        for arguments in (("cancel", "one-waits-0"), ("retry", "one-1"), ("regrade", *GRADER, "--write")):
            code, line = refusal(agl, world, arguments)
            assert code == 1
            assert (
                "store.sqlite belongs to process 4711, which is at work: give --store-url http://127.0.0.1:4747"
                in line
            )
        assert agl("ls", "rollouts")[0] == 0


def test_pipes_and_devices_are_nothing_to_export_into(agl: Agl, world: Path) -> None:
    os.mkfifo(world / "pipe")
    for arguments in (
        ("export", "what=rollouts", "--out", "pipe"),
        ("export", "what=prompts", "--out", "pipe"),
    ):
        for force in ((), ("--force",)):
            code, line = refusal(agl, world, (*arguments, *force))
            assert (code, line) == (2, "pipe is neither a file nor a folder: give another --out")
