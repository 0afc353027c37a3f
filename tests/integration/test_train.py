"""``agl train`` from outside: what it prints, leaves behind and refuses."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from train_processes import SMALL, finished, metrics_of, start_train

FLAKY_AGENT = '''
import agl
from openai import AsyncOpenAI

@agl.rollout
async def flaky(task, llm):
    """Raises on three tasks of ten."""
    if task["number"] % 10 < 3:
        raise ValueError(f"cannot do {task['number']}")
    client = AsyncOpenAI(base_url=llm.base_url, api_key="none")
    answer = await client.chat.completions.create(
        model=llm.model, messages=[{"role": "user", "content": f"What is {task['number']}?"}]
    )
    return float(len(answer.choices[0].message.content or "") % 2)
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished small run and what it printed."""
    run_dir = tmp_path_factory.mktemp("runs") / "small"
    code, out, err = finished(start_train(run_dir, *SMALL))
    assert code == 0, err
    return run_dir, out


def test_the_run_folder_has_everything(run: tuple[Path, str]) -> None:
    run_dir, _ = run
    for name in (
        "settings.yaml",
        "store.sqlite",
        "metrics.jsonl",
        "agl.log",
        "policy/config.json",
        "policy/tokenizer.json",
    ):
        assert (run_dir / name).is_file(), name
    assert list((run_dir / "checkpoints").glob("iteration-*/state.json"))


def test_the_ending_says_what_changed_where_it_is_and_what_to_do_next(run: tuple[Path, str]) -> None:
    run_dir, out = run
    assert "preflight:" in out
    assert "Held-out reward (95% interval)" in out
    assert "assistant:" in out
    assert str(run_dir / "policy") in out
    assert "--resume" in out


def test_learner_and_engine_agree_on_every_sampled_token_before_the_first_update(
    run: tuple[Path, str],
) -> None:
    assert metrics_of(run[0])[1]["update/logprob_gap_first"] < 1e-4


def test_grpo_is_one_override(tmp_path: Path) -> None:
    code, _, err = finished(
        start_train(tmp_path / "grpo", *SMALL, "algorithm=grpo", "algorithm.iterations=1")
    )
    assert code == 0, err
    assert "groups/zero_variance" in metrics_of(tmp_path / "grpo")[1]


def test_low_rank_training_is_one_override_and_its_learner_agrees_with_the_engine(tmp_path: Path) -> None:
    code, _, err = finished(
        start_train(tmp_path / "lora", *SMALL, "policy=lora", "algorithm.iterations=2", "seed=3")
    )
    assert (code, err) == (0, "")
    for iteration in (1, 2):  # the second policy is the merged one
        assert metrics_of(tmp_path / "lora")[iteration]["update/logprob_gap_first"] < 1e-4


def test_measuring_needs_no_learner(tmp_path: Path) -> None:
    code, out, err = finished(
        start_train(
            tmp_path / "run",
            "+recipe=ppo_sql",
            "algorithm=baseline",
            "~learner",
            "data.num_val=4",
            "metrics.console=plain",
        )
    )
    assert (code, err) == (0, "")
    assert "Held-out reward (95% interval)" in out
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_an_agent_that_raises_on_three_tasks_of_ten_is_counted_by_cause_and_never_rewarded(
    tmp_path: Path,
) -> None:
    (tmp_path / "agent.py").write_text(FLAKY_AGENT)
    (tmp_path / "tasks.jsonl").write_text("".join(f'{{"number": {number}}}\n' for number in range(20)))
    code, out, err = finished(
        start_train(
            tmp_path / "run",
            "+recipe=ppo_sql",
            "data=jsonl",
            f"data.train={tmp_path / 'tasks.jsonl'}",
            f"data.val={tmp_path / 'tasks.jsonl'}",
            f"agent.target={tmp_path / 'agent.py'}:flaky",
            "agent.settings=null",
            f"trusted=[{tmp_path}]",
            "algorithm.iterations=2",
            "algorithm.tasks_per_iteration=20",
            "algorithm.group_size=2",
            "algorithm.max_tokens=8",
            "metrics.console=plain",
        )
    )
    assert code == 0, err
    for iteration in (1, 2):
        metrics = metrics_of(tmp_path / "run")[iteration]
        assert metrics["rollouts/enqueued"] == 40
        assert metrics["rollouts/failed/ValueError"] == 12
        assert metrics["rollouts/succeeded"] == 28
        assert metrics["samples/sequences"] == 28
    assert "ValueError 24" in out


def test_ctrl_c_ends_within_five_seconds_with_code_130_and_no_traceback(tmp_path: Path) -> None:
    process = start_train(tmp_path / "run", *SMALL, "algorithm.iterations=1000")
    assert process.stdout is not None
    for line in process.stdout:
        if "preflight:" in line:
            break
    process.send_signal(signal.SIGINT)
    code, _, err = finished(process, timeout=5)
    assert code == 130
    assert "Traceback" not in err
