"""Tokens a second of TorchLearner.update on a small policy, against a plain update in the same run.

The plain update pads every sequence to the longest, computes logits at every position and uses torch's default AdamW.
Both take as many optimizer steps over the same samples; the weights after one step are compared first. Seconds are of
CPU time, which other programs on the machine disturb little; with one thread and an idle machine they are wall seconds.

    python benchmarks/learner.py [--threads 1] [--repeats 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import random
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_policies import make_policy
from transformers import AutoModelForCausalLM

from agl.learners.torch.learner import TorchLearner
from agl.learners.torch.losses import clipped_surrogate
from agl.types.policy import Policy
from agl.types.sample import PolicyLoss, TrainingSample

VOCABULARIES = (800, 16_000)
TASKS, GROUP_SIZE = 16, 8
MINIBATCH = 32
RESULTS = Path(__file__).parent / "results" / "learner.json"


def make_samples(vocabulary: int, seed: int = 0) -> list[TrainingSample]:
    """128 sequences of 120 tokens on average, the last 50 of them sampled."""
    rng = random.Random(seed)
    samples: list[TrainingSample] = []
    for task in range(TASKS):
        prompt = [rng.randrange(vocabulary) for _ in range(rng.randint(50, 90))]
        for member in range(GROUP_SIZE):
            answer = [rng.randrange(vocabulary) for _ in range(rng.randint(30, 70))]
            mask = [0] * len(prompt) + [1] * len(answer)
            samples.append(
                TrainingSample(
                    rollout_id=f"{task}-{member}",
                    token_ids=prompt + answer,
                    loss_mask=mask,
                    old_logprobs=[-math.log(vocabulary)] * len(mask),
                    advantages=[rng.gauss(0, 1)] * len(mask),
                    returns=[rng.random()] * len(mask),
                    old_values=[0.0] * len(mask),
                )
            )
    return samples


class PlainUpdate:
    """The textbook's update, as one writes it first."""

    def __init__(self, policy: Policy) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(policy.path, dtype=torch.float32)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.0
        )

    def update(self, samples: Sequence[TrainingSample], minibatch: int) -> None:
        """Take one epoch of steps."""
        for start in range(0, len(samples), minibatch):
            self.step(samples[start : start + minibatch])

    def step(self, samples: Sequence[TrainingSample]) -> None:
        """Take one step over all samples, padded to the longest."""
        longest = max(len(sample.token_ids) for sample in samples)

        def padded(values: Callable[[TrainingSample], Sequence[float]], dtype: torch.dtype) -> torch.Tensor:
            lines = [list(values(sample)) for sample in samples]
            return torch.tensor([line + [0] * (longest - len(line)) for line in lines], dtype=dtype)

        ids_BT = padded(lambda sample: sample.token_ids, torch.long)
        real_BT = padded(lambda sample: [1] * len(sample.token_ids), torch.long)
        mask_BT = padded(lambda sample: sample.loss_mask, torch.float32)[:, 1:]
        logits_BTV = self.model(ids_BT, attention_mask=real_BT, use_cache=False).logits[:, :-1]
        logprobs_BTV = logits_BTV.log_softmax(-1)
        logprobs_BT = logprobs_BTV.gather(2, ids_BT[:, 1:, None])[..., 0]
        entropy_BT = -(logprobs_BTV.exp() * logprobs_BTV).sum(-1).detach()
        losses, _, _ = clipped_surrogate(
            logprobs_BT.flatten(),
            padded(lambda sample: sample.old_logprobs, torch.float32)[:, 1:].flatten(),
            padded(lambda sample: sample.advantages, torch.float32)[:, 1:].flatten(),
            clip_low=0.2,
            clip_high=0.2,
        )
        loss = (losses * mask_BT.flatten()).sum() / mask_BT.sum()
        self.entropy = float((entropy_BT * mask_BT).sum() / mask_BT.sum())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


async def weight_difference(policy: Policy, samples: Sequence[TrainingSample]) -> float:
    """Return the largest difference of any weight after one same step of both."""
    plain = PlainUpdate(policy)
    plain.update(samples, len(samples))
    async with TorchLearner(policy, warmup_steps=0, critic="head") as learner:
        await learner.update(samples, PolicyLoss())
        ours: Any = (await learner.weights()).tensors
    return max(
        float((tensor.detach() - ours[name]).abs().max()) for name, tensor in plain.model.named_parameters()
    )


async def measure(policy: Policy, samples: Sequence[TrainingSample], repeats: int) -> dict[str, float]:
    """Return the median CPU seconds of one update of each kind, measured in turns."""
    plain = PlainUpdate(policy)
    without = [replace(sample, returns=None, old_values=None) for sample in samples]
    loss = PolicyLoss(minibatch_rollouts=MINIBATCH)
    times: dict[str, list[float]] = {"plain": [], "learner": [], "learner_critic_head": []}
    async with TorchLearner(policy) as learner, TorchLearner(policy, critic="head") as with_critic:
        for repeat in range(repeats + 1):
            begun = time.process_time()
            plain.update(without, MINIBATCH)
            plain_done = time.process_time()
            await learner.update(without, loss)
            learner_done = time.process_time()
            await with_critic.update(samples, loss)
            critic_done = time.process_time()
            if repeat:  # the first one warms caches up
                times["plain"].append(plain_done - begun)
                times["learner"].append(learner_done - plain_done)
                times["learner_critic_head"].append(critic_done - learner_done)
    return {name: statistics.median(values) for name, values in times.items()}


def scenario(vocabulary: int, repeats: int) -> dict[str, Any]:
    """Measure with one vocabulary, print its table and return its numbers."""
    samples = make_samples(vocabulary)
    tokens = sum(len(sample.token_ids) for sample in samples)
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(Path(folder), vocabulary)
        difference = asyncio.run(weight_difference(policy, samples))
        seconds = asyncio.run(measure(policy, samples, repeats))
    print(f"vocabulary {vocabulary}; largest weight difference after one step {difference:.1e}")
    for name, value in seconds.items():
        print(
            f"  {name:20} {value:7.3f} cpu-s {tokens / value:9.0f} tokens/cpu-s {seconds['plain'] / value:5.2f} x plain"
        )
    return {
        "vocabulary": vocabulary,
        "sequences": len(samples),
        "tokens": tokens,
        "sampled_tokens": sum(sum(sample.loss_mask) for sample in samples),
        "optimizer_steps": TASKS * GROUP_SIZE // MINIBATCH,
        "max_weight_difference_after_one_step": difference,
        "cpu_seconds": seconds,
        "tokens_per_cpu_second": {name: tokens / value for name, value in seconds.items()},
        "times_plain": {name: seconds["plain"] / value for name, value in seconds.items()},
    }


def commit() -> str:
    """Return the commit measured."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def main() -> None:
    """Measure all scenarios and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    scenarios = [scenario(vocabulary, arguments.repeats) for vocabulary in VOCABULARIES]
    result = {
        "machine": f"{platform.machine()}, {arguments.threads} thread(s), torch {torch.__version__}",
        "commit": commit(),
        "scenarios": scenarios,
        "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
