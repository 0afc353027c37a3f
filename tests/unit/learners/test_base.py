from agl.learners.base import Learner
from agl.learners.torch.learner import TorchLearner


def test_the_torch_learner_is_a_learner() -> None:
    assert issubclass(TorchLearner, object)
    missing = [name for name in dir(Learner) if not name.startswith("_") and not hasattr(TorchLearner, name)]
    assert missing == []
