"""A grader turns what the agent did into the reward."""

import pickle

import agl
from agl.runners.grading import Grader


def exact(result: object, *, scale: float = 1.0) -> float:
    return scale * float(result == "yes")


async def test_a_grader_sees_the_result_and_the_task(run_tasks) -> None:
    async def agent(task):
        return f"answer {task}"

    def grade(result: str, task: int) -> float:
        return float(result == f"answer {task}" and task > 0)

    right, wrong = await run_tasks(agent, [1, 0], grader=grade)
    assert (right.reward, wrong.reward) == (1.0, 0.0)


async def test_a_grader_may_read_the_spans_of_the_attempt(run_tasks) -> None:
    async def agent(task):
        agl.emit_message("hello")
        agl.emit_message("world")

    async def grade(spans) -> float:
        return float([span.attributes["agl.message.body"] for span in spans] == ["hello", "world"])

    (rollout,) = await run_tasks(agent, [0], grader=grade)
    assert rollout.reward == 1.0


async def test_a_grader_without_an_opinion_leaves_the_emitted_reward(run_tasks) -> None:
    async def agent(task):
        if task:
            agl.emit_reward(0.5)

    graded, none = await run_tasks(agent, [1, 0], grader=lambda result: None)
    assert (graded.reward, none.reward) == (0.5, None)


async def test_a_failing_grader_fails_the_attempt(run_tasks) -> None:
    async def agent(task):
        return 1.0

    def grade(result):
        raise LookupError("no gold answer")

    def confused(result):
        return "good"

    (failed,) = await run_tasks(agent, [0], grader=grade)
    (unclear,) = await run_tasks(agent, [0], grader=confused)
    assert (failed.status, failed.reward, failed.error.cause) == ("failed", None, "LookupError")
    assert unclear.error.message.startswith("the grader ")


def test_graders_pickle_by_reference() -> None:
    back = pickle.loads(pickle.dumps(Grader(exact, {"scale": 2.0})))
    assert back.name == "exact"
    assert back.__reduce__() == (Grader, (exact, {"scale": 2.0}))
