from typing import Any

import pytest

from agl.errors import ConfigError
from agl.learners.tinker.settings import AdamSettings, AdapterSettings, Waits

ADAM: dict[str, Any] = {
    "learning_rate": 0.1,
    "warmup_steps": 0,
    "schedule": "constant",
    "weight_decay": 0.01,
    "beta1": 0.8,
    "beta2": 0.9,
    "max_grad_norm": 2.0,
}
ADAPTER: dict[str, Any] = {"rank": 8, "train_attn": True, "train_mlp": False, "train_unembed": False}
WAITS: dict[str, Any] = {
    "weights_ttl_seconds": 3600,
    "state_ttl_seconds": None,
    "timeout_seconds": 1.0,
    "connect_seconds": 1.0,
}


def test_the_services_optimizer_gets_ours() -> None:
    params = AdamSettings(**ADAM).params(0.05)
    assert (params.learning_rate, params.beta1, params.beta2) == (0.05, 0.8, 0.9)
    assert (params.weight_decay, params.grad_clip_norm) == (0.01, 2.0)


@pytest.mark.parametrize(
    ("made", "plain", "change"),
    [
        (AdamSettings, ADAM, {"learning_rate": 0.0}),
        (AdamSettings, ADAM, {"max_grad_norm": 0.0}),
        (AdamSettings, ADAM, {"warmup_steps": -1}),
        (AdamSettings, ADAM, {"weight_decay": -0.1}),
        (AdamSettings, ADAM, {"beta1": 1.0}),
        (AdapterSettings, ADAPTER, {"rank": 0}),
        (AdapterSettings, ADAPTER, {"train_attn": False}),
        (Waits, WAITS, {"weights_ttl_seconds": 60}),
        (Waits, WAITS, {"state_ttl_seconds": 60}),
        (Waits, WAITS, {"timeout_seconds": 0.0}),
        (Waits, WAITS, {"connect_seconds": -1.0}),
    ],
)
def test_a_bad_setting_is_refused_by_name(made: Any, plain: dict[str, Any], change: dict[str, Any]) -> None:
    made(**plain)
    with pytest.raises(ConfigError, match=rf"learner\.{next(iter(change))}"):
        made(**plain | change)
