"""Whatever is wrong with what ``agl train`` is given: one line that says so, exit code 2, and no run left behind."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from forked_agl import run_agl

RECIPE = Path(__file__).parents[2] / "recipes" / "sql"
WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        hidden = fullname.partition(".")[0] == {module!r}
        return None if hidden else super().find_spec(fullname, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""
"""A sitecustomize with which a module is not there, for whoever imports it or looks for it."""


def refusal(folder: Path, *arguments: str, **environment: str) -> str:
    """Run ``agl train`` in the folder; return its one line of error, all else being as it must be."""
    before = sorted(folder.rglob("*"))
    if environment:  # may be read by whatever is imported
        done = subprocess.run(
            [sys.executable, "-m", "agl", "train", *arguments],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    else:
        done = run_agl(["train", *arguments], folder)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("agl: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert sorted(folder.rglob("*")) == before
    return done.stderr.removeprefix("agl: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["algorithm.group_sizee=8"],
            "algorithm.group_sizee is not a setting; did you mean algorithm.group_size?",
        ),
        (["algorithm.group_size=many"], 'algorithm.group_size is "many": input should be a valid integer'),
        (
            ["data=jsonl", "data.train=tasks.jsonl"],
            "data: train is tasks.jsonl, and there is no such file; did you mean task.jsonl?",
        ),
        (
            ["data=spider", "data.path=spider"],
            "data: path=spider: spider/train_spider.json is missing, so this is not Spider's folder",
        ),
        (["policy.path=./policy"], "inference: policy.path=./policy does not exist"),
        (["agent.target=agent.py:run"], "agent: there is no file agent.py (looked at {folder}/agent.py)"),
        (["store._target_=os.system"], "store._target_ is os.system, which is not trusted"),
        (["algorithm.group_size=0"], "group_size"),
    ],
)
def test_a_wrong_setting_of_the_recipe(tmp_path: Path, arguments: list[str], reason: str) -> None:
    (tmp_path / "task.jsonl").touch()
    assert reason.format(folder=tmp_path) in refusal(tmp_path, "+recipe=ppo_sql", *arguments)


def test_an_unknown_recipe(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path, "+recipe=ppo_sqll") == "there is no recipe called ppo_sqll; did you mean ppo_sql?"
    )


def spider(folder: Path) -> Path:
    """A sound folder in Spider's layout, of one database and one question."""
    database = folder / "database" / "shop" / "shop.sqlite"
    database.parent.mkdir(parents=True)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE item (name TEXT)")
    connection.close()
    questions = '[{"db_id": "shop", "question": "How many items?", "query": "SELECT count(*) FROM item"}]'
    (folder / "train_spider.json").write_text(questions)
    (folder / "dev.json").write_text(questions)
    (folder / "tables.json").write_text(
        '[{"db_id": "shop", "table_names_original": ["item"], "column_names_original": [[-1, "*"], [0, "name"]]}]'
    )
    return folder


def half_a_file(folder: Path) -> None:
    (folder / "train_spider.json").write_text('[{"db_id": "shop", ')


def a_question_without_its_query(folder: Path) -> None:
    (folder / "dev.json").write_text('[{"db_id": "shop", "question": "How many items?"}]')


def a_database_that_is_none(folder: Path) -> None:
    (folder / "database" / "shop" / "shop.sqlite").write_bytes(
        b"not a database, but long enough to be read" * 9
    )


def a_database_that_is_missing(folder: Path) -> None:
    (folder / "database" / "shop" / "shop.sqlite").unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (half_a_file, "data: data/train_spider.json is not valid JSON: "),
        (a_question_without_its_query, "data: data/dev.json: entry 0 has no 'query'"),
        (a_database_that_is_none, "data: data/database/shop/shop.sqlite is not a readable SQLite database: "),
        (a_database_that_is_missing, "data: data/database/shop/shop.sqlite is missing"),
    ],
)
def test_a_corrupt_spider_folder(tmp_path: Path, spoil: Callable[[Path], None], reason: str) -> None:
    spoil(spider(tmp_path / "data"))
    line = refusal(tmp_path, "+recipe=ppo_sql", "data=spider", "data.path=data")
    assert line.startswith(reason)


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def no_chat_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def cut_off_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def a_broken_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (no_tokenizer, "inference: policy.path=mine has no tokenizer (tokenizer.json)"),
        (no_chat_template, "inference: policy.path=mine has no chat template"),
        (no_weights, "inference: policy.path=mine has no weights (model.safetensors)"),
        (cut_off_weights, "policy.path=mine: the model cannot be loaded: "),
        (a_broken_tokenizer, "policy.path=mine: the tokenizer cannot be loaded: "),
    ],
)
def test_a_broken_policy_folder(tmp_path: Path, spoil: Callable[[Path], None], reason: str) -> None:
    shutil.copytree(RECIPE / "policy", tmp_path / "mine")
    spoil(tmp_path / "mine")
    assert refusal(tmp_path, "+recipe=ppo_sql", "policy.path=mine").startswith(reason)


def test_a_policy_that_is_neither_a_folder_nor_to_be_had_from_the_hub(tmp_path: Path) -> None:
    line = refusal(tmp_path, "+recipe=ppo_sql", "policy.path=some/model", HF_ENDPOINT="http://127.0.0.1:9")
    assert line.startswith(
        "policy.path=some/model is no folder here, and http://127.0.0.1:9 does not give it: "
    )


class EmptyHub(BaseHTTPRequestHandler):
    """Has no model, and says so as the Hugging Face hub does."""

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_a_policy_that_the_hub_does_not_know(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyHub) as hub:
        Thread(target=hub.serve_forever).start()
        url = f"http://127.0.0.1:{hub.server_port}"
        try:
            line = refusal(tmp_path, "+recipe=ppo_sql", "policy.path=some/model", HF_ENDPOINT=url)
        finally:
            hub.shutdown()
    assert line == (
        f"policy.path=some/model is no folder here, and {url} has no such model, "
        "or a private one that HF_TOKEN must open"
    )


@pytest.mark.parametrize(
    ("module", "overrides", "reason"),
    [
        (
            "torch",
            [],
            'agl.learners.torch.learner.TorchLearner needs the "torch" extra: pip install "agl[torch]"',
        ),
        ("transformers", [], 'the transformers engine needs the "torch" extra: pip install "agl[torch]"'),
        ("openai", [], f'{RECIPE}/agent.py needs the "openai" extra: pip install "agl[openai]"'),
        ("peft", ["policy=lora"], 'policy.lora needs the "lora" extra: pip install "agl[lora]"'),
    ],
)
def test_an_extra_that_is_not_installed(
    tmp_path: Path, module: str, overrides: list[str], reason: str
) -> None:
    place = tmp_path / "hidden"
    place.mkdir()
    (place / "sitecustomize.py").write_text(WITHOUT.format(module=module))
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    assert reason in refusal(folder, "+recipe=ppo_sql", *overrides, **environment)


def test_a_run_folder_that_holds_a_run_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.yaml").write_text("name: mine\n")
    line = refusal(tmp_path, "+recipe=ppo_sql", "--run-dir", "run")
    assert line == "run_dir run holds a run; go on with --resume run, or choose another folder"
    assert (tmp_path / "run" / "settings.yaml").read_text() == "name: mine\n"
