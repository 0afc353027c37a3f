"""A recipe whose trainer only pretends, in a working directory of its own."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from command_line import Agl
from typer.testing import CliRunner

from agl.cli.app import app

FAKE = """
import json
import logging
from pathlib import Path

from agl.errors import ConfigError, MissingExtraError, RunStoppedError
from agl.trainer import Trainer


class Ending:
    def lines(self):
        return ["it is done", "all of it"]


class FakeTrainer(Trainer):
    def __init__(self, *, name: str, run_dir: str, seed: int = 0, ending: str = "done", **parts: object) -> None:
        self.name, self.run_dir, self.seed, self.ending = name, Path(run_dir), seed, ending
        if ending == "refused":
            raise ValueError("ending must not be refused")

    def fit(self, *, resume=False, settings=None):
        logging.getLogger("agl.fake").info("fitting")
        (self.run_dir / "fitted.json").write_text(json.dumps({"resume": resume, "seed": self.seed, **settings}))
        if self.ending == "no tasks":
            (self.run_dir / "fitted.json").unlink()
            raise ConfigError("data has no tasks")
        if self.ending == "stopped":
            raise ExceptionGroup("two", [ValueError("x"), RunStoppedError("too many\\nbad rollouts")])
        if self.ending == "crash":
            raise RuntimeError("unforeseen")
        if self.ending == "interrupt":
            raise KeyboardInterrupt
        if self.ending == "extra":
            (self.run_dir / "fitted.json").unlink()
            raise MissingExtraError("Flying", "wings")
        return Ending()
"""

RECIPE = """
    # @package _global_
    _target_: {folder}/fake.py:FakeTrainer
    name: fake
    ending: done
    trusted: [{folder}]
    agent: null
    data: null
    algorithm: null
    policy: null
    inference: null
    learner: null
    store: null
    runner: null
    proxy: null
    adapter: null
    metrics: null
"""


@pytest.fixture
def recipes(in_folder: Path) -> Path:
    """A folder for ``--config-dir`` with the recipe ``fake``."""
    folder = in_folder / "mine"
    (folder / "recipe").mkdir(parents=True)
    (folder / "fake.py").write_text(FAKE)
    (folder / "recipe" / "fake.yaml").write_text(dedent(RECIPE).lstrip().format(folder=folder))
    return folder


@pytest.fixture
def agl(in_folder: Path) -> Agl:
    """Run the command line in the test's folder; return exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return result.exit_code, result.stdout, result.stderr

    return run
