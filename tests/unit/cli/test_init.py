"""agl init: a folder, what is in it, and what comes next; the recipe composes from inside of it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import Agl

from agl.agents.base import Bound
from agl.agents.function import FunctionAgent
from agl.cli.starters import Starter
from agl.config import check, compose
from agl.types import LLM, PromptTemplate


def test_it_lists_what_it_wrote_and_the_next_commands(agl: Agl) -> None:
    code, out, err = agl("init", "tickets")
    assert (code, err) == (0, "")
    assert out.startswith("tickets/ is a recipe whose agent is written with OpenAI's client:\n")
    assert "  tickets/agent.py\n" in out
    next_lines = out[out.index("Next:\n") :].splitlines()[1:]
    assert next_lines == [
        "  cd tickets",
        "  agl doctor +recipe=tickets",
        "  python -m pytest",
        "  agl train +recipe=tickets",
    ]


def test_json_says_the_same(agl: Agl) -> None:
    code, out, _ = agl("init", "tickets", "--agent", "function", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["folder"] == "tickets"
    assert told["missing"] == []
    assert "tickets/configs/recipe/tickets.yaml" in told["files"]
    assert all(Path(file).is_file() for file in told["files"])
    assert told["next"][0] == "cd tickets"


def test_a_framework_that_is_not_installed_is_named_with_what_installs_it(agl: Agl) -> None:
    code, out, _ = agl("init", "tickets", "--agent", "langgraph")
    assert code == 0
    assert Path("tickets/agent.py").is_file()
    is_missing = find_spec("langgraph") is None
    assert ("Not installed yet: langgraph.\n" in out) == is_missing
    assert ('  pip install "agl[torch]" langgraph langchain-openai pytest\n' in out) == is_missing


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["my-agent"], "'my-agent' cannot be the name of a recipe"),
        (["ppo_sql"], "agl has a recipe ppo_sql itself"),
        (["taken"], "taken is there already"),
    ],
)
def test_a_name_that_cannot_be_is_one_line_and_exit_code_two(
    agl: Agl, arguments: list[str], reason: str
) -> None:
    Path("taken").mkdir()
    Path("taken/file").write_text("x")
    code, out, err = agl("init", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"agl: {reason}")
    assert err.count("\n") == 1


def test_an_unknown_framework_is_exit_code_two(agl: Agl) -> None:
    code, _, err = agl("init", "x", "--agent", "cobol")
    assert code == 2
    assert "cobol" in err
    assert not Path("x").exists()


@pytest.mark.parametrize("starter", [Starter.OPENAI, Starter.FUNCTION])
def test_the_agent_takes_what_the_recipe_gives(
    agl: Agl, monkeypatch: pytest.MonkeyPatch, starter: Starter
) -> None:
    assert agl("init", "tickets", "--agent", starter.value)[0] == 0
    monkeypatch.chdir("tickets")
    settings = compose("train", ["+recipe=tickets"])
    check(settings)
    agent = FunctionAgent("agent.py:agent")
    assert isinstance(agent, Bound)
    template = settings.values["resources"]["prompt_template"]
    agent.check_resources(
        {
            "llm": LLM(base_url="http://unset", model="policy"),
            "prompt_template": PromptTemplate.model_validate(template),
        }
    )


def test_a_program_starts_from_settings_of_its_own(agl: Agl, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agl("init", "tickets", "--agent", "command")[0] == 0
    monkeypatch.chdir("tickets")
    settings = compose("train", ["+recipe=tickets"])
    check(settings)
    assert settings.values["agent"]["command"][1] == "agent.py"


def test_the_recipe_improves_prompts_with_one_override(agl: Agl, monkeypatch: pytest.MonkeyPatch) -> None:
    agl("init", "tickets")
    monkeypatch.chdir("tickets")
    check(compose("train", ["+recipe=tickets", "algorithm=apo", "inference=openai"]))
    check(compose("train", ["+recipe=tickets", "policy.path=Qwen/Qwen2.5-0.5B-Instruct"]))


def test_the_page_names_every_framework_and_shows_what_is_printed(agl: Agl) -> None:
    page = (Path(__file__).parents[3] / "docs" / "start.md").read_text(encoding="utf-8")
    table = page.split("| `--agent` |")[1].split("\n\n")[0]
    assert all(f"`{starter.value}`" in table for starter in Starter)
    _, out, _ = agl("init", "tickets", "--agent", "langgraph")
    shown = page.split("--agent langgraph\n")[1].split("```")[0].splitlines()
    assert [line for line in shown if line.startswith("  tickets/")] == [
        line for line in out.splitlines() if line.startswith("  tickets/")
    ]
    assert out.splitlines()[0] == shown[0]
