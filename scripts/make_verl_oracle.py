"""Write tests/data/verl_oracle.json: what verl's core algorithms say to seeded inputs, for tests that need no verl.

python scripts/make_verl_oracle.py        # in an environment with verl 0.9.1
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import verl
from verl.trainer.ppo import core_algos

rng = np.random.default_rng(7)
B, T = 6, 9


def tensor(values: np.ndarray) -> torch.Tensor:
    """The values as a double tensor."""
    return torch.tensor(values, dtype=torch.float64)


mask = np.zeros((B, T))
for row, (start, end) in enumerate([(0, 9), (0, 5), (1, 8), (2, 4), (0, 1), (3, 9)]):
    mask[row, start:end] = 1
mask[0, 3:5] = 0  # what the environment wrote between two turns
last = T - 1 - mask[:, ::-1].argmax(axis=1)
scores = np.array([1.0, 0.0, 1.0, 0.5, 0.0, 1.0])
rewards = np.zeros((B, T))
rewards[np.arange(B), last] = scores
values = rng.normal(size=(B, T)) * 0.5
old = -rng.exponential(size=(B, T))
new = old + rng.normal(size=(B, T))
advantages = rng.normal(size=(B, T))
returns = rng.normal(size=(B, T))
new_values = values + rng.normal(size=(B, T)) * 0.4
groups = np.array(["a", "a", "a", "b", "b", "b"], dtype=object)

gae, gae_returns = core_algos.compute_gae_advantage_return(
    token_level_rewards=tensor(rewards),
    values=tensor(values),
    response_mask=tensor(mask),
    gamma=0.97,
    lam=0.9,
)
grpo, _ = core_algos.compute_grpo_outcome_advantage(
    token_level_rewards=tensor(rewards),
    response_mask=tensor(mask),
    index=groups,
    norm_adv_by_std_in_grpo=True,
)


def policy_loss(dual_clip: float) -> float:
    """Verl's clipped loss with that bound for negative advantages."""
    from verl.workers.config import ActorConfig

    config = ActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio=0.2,
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=dual_clip,
    )
    loss, _ = core_algos.compute_policy_loss_vanilla(
        old_log_prob=tensor(old),
        log_prob=tensor(new),
        advantages=tensor(advantages),
        response_mask=tensor(mask),
        loss_agg_mode="token-mean",
        config=config,
    )
    return float(loss)


value_loss, _ = core_algos.compute_value_loss(
    vpreds=tensor(new_values),
    returns=tensor(returns),
    values=tensor(values),
    response_mask=tensor(mask),
    cliprange_value=0.2,
    loss_agg_mode="token-mean",
)
kl = {
    name: core_algos.kl_penalty(tensor(new), tensor(old), kind).tolist()
    for name, kind in {"k1": "k1", "k2": "k2", "k3": "k3"}.items()
}
oracle = {
    "verl": verl.__version__,
    "mask": mask.astype(int).tolist(),
    "rewards": rewards.tolist(),
    "scores": scores.tolist(),
    "groups": groups.tolist(),
    "values": values.tolist(),
    "old_logprobs": old.tolist(),
    "new_logprobs": new.tolist(),
    "advantages": advantages.tolist(),
    "returns": returns.tolist(),
    "new_values": new_values.tolist(),
    "gae": {
        "gamma": 0.97,
        "lambda": 0.9,
        "advantages_whitened": gae.tolist(),
        "returns": gae_returns.tolist(),
    },
    "grpo": grpo.tolist(),
    "policy_loss": {
        "clip_low": 0.2,
        "clip_high": 0.28,
        "dual_clip_3": policy_loss(3.0),
        "dual_clip_1e9": policy_loss(1e9),
    },
    "value_loss": {"value_clip": 0.2, "loss": float(value_loss)},
    "kl": kl,
}
target = Path(__file__).parents[1] / "tests" / "data" / "verl_oracle.json"
target.parent.mkdir(exist_ok=True)
target.write_text(json.dumps(oracle, indent=1))
