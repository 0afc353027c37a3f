import pytest
from tinker import ForwardBackwardOutput, TensorData

from agl.errors import RunStoppedError
from agl.learners.tinker.datums import Row
from agl.learners.tinker.exchange import datums_of, logprobs_of
from agl.types.sample import LikelihoodLoss, PolicyLoss

ROW = Row(rollout_id="r", token_ids=[5, 6, 7], positions=[2], old_logprobs=[-0.5], advantages=[4.0])


def output(*lines: list[float] | None) -> ForwardBackwardOutput:
    outputs = [
        {} if line is None else {"logprobs": TensorData(data=line, dtype="float32", shape=[len(line)])}
        for line in lines
    ]
    return ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=outputs)


def test_a_row_is_one_datum_of_typed_arrays() -> None:
    (datum,) = datums_of([ROW], [0.5], PolicyLoss())
    assert datum.model_input.to_ints() == [5, 6]
    inputs = datum.loss_fn_inputs
    assert {name: (tensor.dtype, tensor.tolist()) for name, tensor in inputs.items()} == {
        "target_tokens": ("int64", [6, 7]),
        "logprobs": ("float32", [0.0, -0.5]),
        "advantages": ("float32", [0.0, 2.0]),
    }
    (datum,) = datums_of([ROW], [0.5], LikelihoodLoss())
    assert datum.loss_fn_inputs["weights"].tolist() == [0.0, 0.5]


def test_the_logprobs_of_sampled_tokens_are_picked_out() -> None:
    assert logprobs_of([ROW], output([-0.25, -0.75])) == [[-0.75]]


@pytest.mark.parametrize("lines", [[None], [[-0.25]], []])
def test_logprobs_that_are_missing_stop_the_run(lines: list[list[float] | None]) -> None:
    with pytest.raises(RunStoppedError, match="did not send the logprob of every token"):
        logprobs_of([ROW], output(*lines))
