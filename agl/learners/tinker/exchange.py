"""What goes to the Tinker service and comes back, in the SDK's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agl.errors import RunStoppedError
from agl.learners.tinker.datums import Row, loss_inputs
from agl.types.sample import LikelihoodLoss, PolicyLoss

if TYPE_CHECKING:
    import tinker


def datums_of(
    rows: Sequence[Row], token_weights: Sequence[float], loss: PolicyLoss | LikelihoodLoss
) -> list[tinker.Datum]:
    """Return what the service's ``forward_backward`` takes, one datum a row."""
    from tinker import Datum, ModelInput

    data: list[tinker.Datum] = []
    for row, weight in zip(rows, token_weights, strict=True):
        inputs: Any = loss_inputs(row, weight, loss)  # lists, which Datum turns into arrays
        data.append(Datum(model_input=ModelInput.from_ints(row.inputs), loss_fn_inputs=inputs))
    return data


def logprobs_of(rows: Sequence[Row], output: tinker.ForwardBackwardOutput) -> list[list[float]]:
    """Return the logprobs of each row's sampled tokens.

    Raises:
        RunStoppedError: the service does not send them.
    """
    lines = [datum["logprobs"].data for datum in output.loss_fn_outputs if "logprobs" in datum]
    if [len(line) for line in lines] != [len(row.targets) for row in rows]:
        raise RunStoppedError("the Tinker service did not send the logprob of every token with its gradient")
    return [row.picked(line) for row, line in zip(rows, lines, strict=True)]
