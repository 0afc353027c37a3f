"""What packing several sequences into a line brings: `python benchmarks/packing.py`.

Tokens a CPU second of supervised updates, sequences apart in micro-batches of like length (the default) against packed,
on lengths as agents have them (most short, some long) and on even ones; and the share of each forward that is padding.
CPU seconds are disturbed little by other programs; both ways alternate in one process, and the loss is compared first.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from report import machine, write
from tiny_policies import make_policy

from agl.learners.torch.learner import TorchLearner
from agl.learners.torch.packing import planned_lines
from agl.types.policy import Policy
from agl.types.sample import LikelihoodLoss, TrainingSample

VOCABULARY = 2048
LENGTHS = {
    "even": lambda rng: rng.randint(110, 130),
    "spread": lambda rng: rng.randint(40, 220),
    "long tail": lambda rng: min(900, max(20, int(rng.lognormvariate(4.4, 0.8)))),
}


def make_samples(kind: str, count: int) -> list[TrainingSample]:
    """Sequences of which the second half is learned."""
    rng, samples = random.Random(0), list[TrainingSample]()
    for number in range(count):
        length = LENGTHS[kind](rng)
        samples.append(
            TrainingSample(
                rollout_id=str(number),
                token_ids=[rng.randrange(VOCABULARY) for _ in range(length)],
                loss_mask=[0] * (length // 2) + [1] * (length - length // 2),
            )
        )
    return samples


def padding(samples: list[TrainingSample], max_tokens: int, *, packed: bool) -> float:
    """The share of all positions that no sequence stands on."""
    lengths = [len(sample.token_ids) - 1 for sample in samples]
    plan = planned_lines(lengths, [[at] for at in range(len(lengths))], max_tokens=max_tokens, packed=packed)
    positions = sum(len(lines) * max(sum(lengths[at] for at in line) for line in lines) for lines in plan)
    return 1 - sum(lengths) / positions


async def measure(
    policy: Policy, kind: str, *, minibatch: int, max_tokens: int, repeats: int
) -> dict[str, Any]:
    """Update in both ways in turn."""
    samples = make_samples(kind, minibatch)
    tokens = sum(len(sample.token_ids) for sample in samples)
    ways = {"apart": False, "packed": True}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    losses: dict[str, float] = {}
    learners = {
        way: TorchLearner(policy, packing=packing, micro_batch_tokens=max_tokens, num_threads=1)
        for way, packing in ways.items()
    }
    async with learners["apart"], learners["packed"]:
        for repeat in range(repeats + 1):
            for way, learner in learners.items():
                began = time.process_time()
                report = await learner.update(samples, LikelihoodLoss())
                if repeat == 0:  # the first is warm-up, from equal weights
                    losses[way] = report.metrics["loss"]
                else:
                    seconds[way].append(time.process_time() - began)
    assert abs(losses["apart"] - losses["packed"]) < 1e-5 * losses["apart"]
    row: dict[str, Any] = {"lengths": kind, "sequences": minibatch, "micro_batch_tokens": max_tokens}
    for way, packing in ways.items():
        row[f"{way}_tokens_per_second"] = round(tokens / median(seconds[way]))
        row[f"{way}_padding"] = round(padding(samples, max_tokens, packed=packing), 3)
    row["gain"] = round(row["packed_tokens_per_second"] / row["apart_tokens_per_second"], 3)
    return row


async def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(Path(folder), vocabulary=VOCABULARY)
        for kind in LENGTHS:
            for minibatch in (8, 64):
                for max_tokens in (1024, 4096):
                    row = await measure(
                        policy, kind, minibatch=minibatch, max_tokens=max_tokens, repeats=arguments.repeats
                    )
                    print(row, flush=True)
                    rows.append(row)
    write("packing", machine(), {"rows": rows})


if __name__ == "__main__":
    asyncio.run(main())
