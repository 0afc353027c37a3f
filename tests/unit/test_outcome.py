"""The closing report says what changed, shows transcripts, and leads on."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from recorded_spans import call_span

from agl.algorithms.base import RunResult
from agl.evaluation.counts import RolloutCounts, count_rollouts
from agl.evaluation.evaluate import Evaluation
from agl.evaluation.statistics import mean_reward
from agl.outcome import Outcome, outcome_of
from agl.store.sqlite import InMemoryLightningStore
from agl.types import PromptTemplate, Rollout, RolloutRequest
from agl.types import attributes as key


async def evaluation(store: InMemoryLightningStore, prefix: str, rewards: list[float]) -> Evaluation:
    rollouts: list[Rollout] = []
    for index, reward in enumerate(rewards):
        claim = await store.start_rollout(
            RolloutRequest(task={"question": index}, rollout_id=f"{prefix}-{index}")
        )
        span = call_span(
            1,
            [1],
            [2],
            **{
                key.INPUT_MESSAGES: json.dumps([{"role": "user", "content": f"question {index}"}]),
                key.OUTPUT_MESSAGES: json.dumps(
                    [{"role": "assistant", "content": f"{prefix} answer {index}"}]
                ),
            },
        )
        await store.add_otel_span(
            claim.rollout.rollout_id,
            claim.attempt.attempt_id,
            span.model_copy(update={"sequence_id": None, "trace_id": f"{prefix}{index}"}),
        )
        done = await store.update_attempt(
            claim.rollout.rollout_id, claim.attempt.attempt_id, status="succeeded", reward=reward
        )
        rollouts.append(done.rollout)
    return Evaluation(
        name="val/reward_greedy",
        reward=mean_reward([[reward] for reward in rewards]),
        counts=count_rollouts(rollouts),
        rollouts=[[rollout] for rollout in rollouts],
    )


async def test_the_report_has_the_gain_one_improved_transcript_and_the_next_commands(tmp_path: Path) -> None:
    counts = RolloutCounts(
        enqueued=9, succeeded=7, failed=Counter({"ValueError": 2}), without_reward=1, untrainable=3
    )
    (tmp_path / "settings.yaml").touch()
    async with InMemoryLightningStore() as store:
        result = RunResult(
            before=[await evaluation(store, "before", [1.0, 0.0, 0.0])],
            after=[await evaluation(store, "after", [1.0, 1.0, 0.0])],
            counts=counts,
            iterations=40,
            policy_dir=tmp_path / "policy",
            checkpoint_dir=tmp_path / "checkpoints" / "iteration-000001",
            diagnosis=["entropy fell"],
        )
        outcome = await outcome_of(result, store=store, run_dir=tmp_path, name="test")
    text = "\n".join(outcome.lines())
    assert "greedy   before 0.333 [-1.101, 1.768]   after 0.667 [-0.768, 2.101]   3 tasks" in text
    assert "9 enqueued = 7 succeeded + 2 failed + 0 cancelled; failed by cause: ValueError 2" in text
    assert "without reward: 1; without calls: 0; without a sample to learn from: 3" in text
    assert "Note: entropy fell" in text
    assert [sample.title.split(":")[0] for sample in outcome.transcripts] == [
        "Improved",
        "Still wrong",
        "Kept",
    ]
    assert "before answer 1" in text
    assert "after answer 1" in text
    assert outcome.lines()[-4:] == [
        "Next: train on",
        f"  agl train --resume {tmp_path} algorithm.iterations=80",
        "Next: start another run from this policy",
        f"  agl train +recipe=test policy.path={tmp_path / 'policy'}",
    ]


def ended(run_dir: Path, name: str, **result: Any) -> list[str]:
    counts = RolloutCounts(enqueued=2, succeeded=2)
    given = RunResult(**{"before": [], "after": [], "counts": counts, **result})
    return Outcome(result=given, transcripts=[], run_dir=run_dir, name=name).lines()


def test_a_folder_with_a_blank_is_quoted_in_the_commands(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    folder.mkdir()
    (folder / "settings.yaml").touch()
    lines = ended(folder, "test", policy_dir=folder / "policy", iterations=1)
    commands = [shlex.split(line) for line in lines if line.startswith("  agl")]
    assert commands == [
        ["agl", "train", "--resume", str(folder), "algorithm.iterations=2"],
        [
            "agl",
            "train",
            "+recipe=test",
            f"policy.path='{folder}/policy'",
        ],  # as Hydra wants a value with a blank
    ]


def test_a_run_from_python_is_told_how_to_go_on_from_python(tmp_path: Path) -> None:
    text = "\n".join(ended(tmp_path, "train", policy_dir=tmp_path / "policy", iterations=1))
    assert "agl train" not in text
    assert "fit(resume=True)" in text
    assert f"policy=Policy(path='{tmp_path / 'policy'}')" in text


def test_a_run_without_a_recipe_is_not_told_to_name_one(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").touch()
    text = "\n".join(ended(tmp_path, "train", policy_dir=tmp_path / "policy", iterations=1))
    assert "+recipe" not in text
    assert f"policy.path={tmp_path / 'policy'}" in text


def test_an_adapter_of_a_remote_model_is_called_so_and_not_offered_as_a_policy(tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "tinker.json").touch()
    text = "\n".join(ended(tmp_path, "test", policy_dir=policy, iterations=2))
    assert f"{policy} (a LoRA adapter of a remote model)" in text
    assert "fit(resume=True)" in text
    (tmp_path / "settings.yaml").touch()
    text = "\n".join(ended(tmp_path, "test", policy_dir=policy, iterations=2))
    assert f"agl train --resume {tmp_path} algorithm.iterations=4" in text
    assert "policy.path" not in text


async def test_a_run_that_trains_nothing_claims_no_training(tmp_path: Path) -> None:
    async with InMemoryLightningStore() as store:
        only = [await evaluation(store, "only", [1.0, 0.0])]
    lines = ended(tmp_path, "test", before=only, after=only)
    text = "\n".join(lines)
    assert "  greedy   0.500 [-5.853, 6.853]   2 tasks" in lines
    assert "Rollouts: 2 enqueued" in lines[2]
    assert "train" not in text.replace(str(tmp_path), "").lower()


def test_without_validation_tasks_the_report_says_so(tmp_path: Path) -> None:
    assert ended(tmp_path, "test", policy_dir=tmp_path / "policy", iterations=1)[0] == (
        "Held-out reward: not measured, the data has no validation tasks"
    )


def searched(run_dir: Path, name: str, text: str = "Solve {task}") -> list[str]:
    first = PromptTemplate(template="Answer {task}")
    prompts = {"prompt": first if text == first.template else first.changed_to(text)}
    return ended(
        run_dir,
        name,
        prompts=prompts,
        first_prompts={"prompt": first},
        prompts_dir=run_dir / "prompts",
        further="beam_rounds=6",
    )


def test_a_search_for_prompts_ends_with_the_diff_their_place_and_the_next_commands(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").touch()
    lines = searched(tmp_path, "rooms")
    at = lines.index("Prompt prompt: changed")
    assert lines[at + 4 : at + 6] == ["  -Answer {task}", "  +Solve {task}"]
    folder = tmp_path / "prompts"
    assert f"Prompts      {folder} (best/: the chosen ones; candidates.jsonl: all, with scores)" in lines
    assert lines[-4:] == [
        "Next: search on",
        f"  agl train --resume {tmp_path} algorithm.beam_rounds=6",
        "Next: start another run from these prompts",
        f"  agl train +recipe=rooms 'resources.prompt.template=${{file:{folder}/best/prompt.txt}}'",
    ]


def test_a_search_that_found_nothing_better_says_so(tmp_path: Path) -> None:
    assert "Prompt prompt: no better one was found" in searched(tmp_path, "rooms", "Answer {task}")


def test_what_a_model_wrote_cannot_steer_the_terminal(tmp_path: Path) -> None:
    assert "\x1b" not in "\n".join(searched(tmp_path, "rooms", "Solve \x1b[2J {task}"))


def test_a_search_from_python_is_told_how_to_go_on_from_python(tmp_path: Path) -> None:
    lines = searched(tmp_path, "train")
    assert lines[-1] == "  Trainer(resources={'prompt': PromptTemplate(template=...)}, ...)"
