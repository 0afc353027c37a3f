"""Which learner goes with which engine: the engine must be able to serve what the learner trains."""

from __future__ import annotations

from agl.errors import ConfigError
from agl.inference.base import Engine
from agl.learners.base import Learner
from agl.types.weights import KeptByService


def check_pair(learner: Learner, engine: Engine) -> None:
    """Refuse a learner and an engine that begin with different weights, or cannot hand them over.

    Raises:
        ConfigError: one of them leaves the weights to a service and the other does not, or they are another model's.
    """
    trained = learner.kept_as if isinstance(learner, KeptByService) else None
    served = engine.kept_as if isinstance(engine, KeptByService) else None
    if trained == served:
        return
    if trained is None or served is None:
        here = "inference" if served is None else "learner"
        there, name = ("learner", trained) if served is None else ("inference", served)
        raise ConfigError(
            f"{there} leaves the weights to a service ({name}) and {here} has them on this machine: learner=tinker goes"
            " with inference=tinker, and learner=torch with inference=transformers"
        )
    raise ConfigError(
        f"learner begins with {trained} and inference with {served}: give both the same base_model, and no"
        " inference.weights while a learner trains"
    )
