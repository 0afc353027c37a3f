"""``agl train learner=tinker inference=tinker`` from outside: it learns, survives the service's faults, and resumes."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT, blocks
from tinker_service import KEY, TinkerMachines, tinker_machines
from tiny_policies import word_tokenizer, write_llama
from train_processes import finished, metrics_of, resume_train, start_train, wait_for_iteration

WORDS = ["<pad>", "<s>", "</s>", "yes", "no", *(f"w{index}" for index in range(15))]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
AGENT = '''
import agl
from openai import AsyncOpenAI

@agl.rollout
async def agreeing(task, llm):
    """How much of six words is yes."""
    client = AsyncOpenAI(base_url=llm.base_url, api_key="none")
    answer = await client.chat.completions.create(
        model=llm.model, messages=[{"role": "user", "content": f"w{task['number']}"}]
    )
    return (answer.choices[0].message.content or "").split().count("yes") / 6
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy, an agent and its tasks."""
    folder = tmp_path_factory.mktemp("yes")
    write_llama(
        folder / "policy",
        word_tokenizer(TEMPLATE, words=WORDS),
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.1,
    )
    (folder / "agent.py").write_text(AGENT)
    (folder / "tasks.jsonl").write_text("".join(f'{{"number": {number}}}\n' for number in range(8)))
    return folder


@pytest.fixture
def machines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerMachines]:
    with tinker_machines({str(folder / "policy"): 64}) as machines:
        monkeypatch.setenv("TINKER_BASE_URL", machines.url)
        monkeypatch.setenv("TINKER_API_KEY", KEY)
        yield machines


def arguments(folder: Path, **changes: Any) -> list[str]:
    """Of a run on the tasks."""
    settings = {
        "learner": "tinker",
        "inference": "tinker",
        "algorithm": "grpo",
        "policy.path": folder / "policy",
        "agent.target": f"{folder / 'agent.py'}:agreeing",
        "data": "jsonl",
        "data.train": folder / "tasks.jsonl",
        "data.val": folder / "tasks.jsonl",
        "trusted": f"[{folder}]",
        "learner.rank": 8,
        "learner.learning_rate": 0.02,
        "algorithm.iterations": 6,
        "algorithm.tasks_per_iteration": 8,
        "algorithm.group_size": 4,
        "algorithm.max_tokens": 6,
        "algorithm.save_every": 1,
        "metrics.console": "plain",
    }
    return [f"{name}={value}" for name, value in (settings | changes).items()]


def test_a_few_iterations_of_grpo_raise_the_reward_through_passing_faults_and_the_key_is_nowhere(
    folder: Path, machines: TinkerMachines, tmp_path: Path
) -> None:
    for operation in ("asample", "forward_backward", "optim_step", "retrieve_future"):
        machines.fail(operation, 429, 500, "drop")
    code, out, err = finished(start_train(tmp_path / "run", *arguments(folder)))
    assert code == 0, err
    metrics = metrics_of(tmp_path / "run")
    assert metrics[6]["val/reward"] > metrics[0]["val/reward"] + 0.4
    assert metrics[1]["update/logprob_gap_first"] < 1e-4
    assert metrics[6]["policy/version"] >= 5  # groups that are all right teach nothing
    assert not any(machines.faults.values())
    assert machines.count("telemetry") == 0
    assert (tmp_path / "run" / "policy" / "adapter_model.safetensors").is_file()
    assert "LoRA adapter" in out
    assert "policy.path" not in out  # the folder is no model to begin another run from
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert KEY not in out + err


def test_a_killed_run_goes_on_from_the_services_state_and_pays_for_no_rollout_twice(
    folder: Path, machines: TinkerMachines, tmp_path: Path
) -> None:
    process = start_train(tmp_path / "run", *arguments(folder, **{"algorithm.iterations": 4}))
    wait_for_iteration(tmp_path / "run", 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = metrics_of(tmp_path / "run")
    steps = machines.count("optim_step")
    code, out, err = finished(resume_train(tmp_path / "run"))
    assert code == 0, err
    loaded = [body for name, body in machines.calls if name == "load_weights"]
    assert len(loaded) == 1
    assert loaded[0]["optimizer"] is True
    checkpoint = json.loads(
        (max((tmp_path / "run" / "checkpoints").glob("iteration-*")) / "learner" / "tinker.json").read_text()
    )
    assert checkpoint["policy_version"] == checkpoint["optimizer_steps"] == 4
    assert "resumed behind iteration" in out
    metrics = metrics_of(tmp_path / "run")
    resumed = int(out.partition("resumed behind iteration ")[2].split()[0].rstrip(":;,."))
    assert steps + (4 - resumed) >= machines.count("optim_step")
    for iteration in range(1, resumed + 1):
        assert metrics[iteration] == before[iteration]
    assert metrics[4]["total/rollouts/enqueued"] == 4 * 32


def test_a_step_that_the_service_refuses_stops_the_run_with_what_to_do_and_resuming_does_it(
    folder: Path, machines: TinkerMachines, tmp_path: Path
) -> None:
    process = start_train(tmp_path / "run", *arguments(folder, **{"algorithm.iterations": 3}))
    wait_for_iteration(tmp_path / "run", 1)
    machines.fail("optim_step", 422)
    code, _, err = finished(process)
    assert code == 1
    assert "did not take the optimizer step" in err
    assert "--resume" in err
    assert "Traceback" not in err
    code, _, err = finished(resume_train(tmp_path / "run"))
    assert code == 0, err
    assert metrics_of(tmp_path / "run")[3]["policy/version"] == 3


def test_the_recipe_for_ppo_composes_with_the_service_and_ppo_itself_is_refused_by_its_setting(
    folder: Path, machines: TinkerMachines, tmp_path: Path
) -> None:
    on = ["+recipe=ppo_sql", "learner=tinker", "inference=tinker", "policy.path=Qwen/Qwen3-8B"]
    code, out, err = finished(start_train(tmp_path / "run", *on, "algorithm=grpo", "--cfg"))
    assert code == 0, err
    assert "agl.learners.tinker.learner.TinkerLearner" in out
    assert KEY not in out
    code, _, err = finished(start_train(tmp_path / "run", *on))
    assert code == 2
    assert "use algorithm=grpo" in err
    assert not machines.calls


def test_the_policy_learns_from_its_own_good_answers(
    folder: Path, machines: TinkerMachines, tmp_path: Path
) -> None:
    changes = {
        "algorithm": "sft",
        "algorithm.min_reward": 0.3,
        "algorithm.max_tokens": 24,  # what does not end by itself is not learned from
        "algorithm.rounds": 2,
        "algorithm.group_size": 8,
        "algorithm.minibatch_size": 8,
    }
    chosen = [
        argument
        for argument in arguments(folder, **changes)
        if not argument.startswith(("algorithm.iterations", "algorithm.tasks_per_iteration"))
    ]
    code, _, err = finished(start_train(tmp_path / "run", *chosen))
    assert code == 0, err
    metrics = metrics_of(tmp_path / "run")
    assert metrics[max(metrics)]["val/reward"] > metrics[0]["val/reward"] + 0.1
    assert machines.count("forward_backward") >= machines.count("optim_step") > 2


def test_every_command_of_the_page_has_settings_that_exist(tmp_path: Path) -> None:
    lines = [line for block in blocks(ROOT / "docs" / "tinker.md", "sh") for line in block.splitlines()]
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("agl train")]
    assert len(commands) == 2
    (tmp_path / "tokenizer").mkdir()
    for command in commands:
        code, _, err = finished(start_train(tmp_path / "run", *command, "--cfg", cwd=tmp_path))
        assert code == 0, err
