"""What agl run says of its tasks."""

from pathlib import Path

import agl
from agl.cli.task_table import lines_of, of_the_agent, summary
from agl.launch.tasks import TaskResult
from agl.types import ErrorInfo, Rollout


def result(
    task: object, status: str = "succeeded", *, calls: int = 0, tokens: int = 0, **more: object
) -> TaskResult:
    rollout = Rollout(
        rollout_id="r", task=task, status=status, created_at=0.0, started_at=10.0, finished_at=12.5, **more
    )
    return TaskResult(rollout=rollout, calls=calls, tokens=tokens)


def failed(cause: str, message: str = "", traceback: str | None = None) -> TaskResult:
    return result("t", "failed", error=ErrorInfo(cause=cause, message=message, traceback=traceback))


def test_each_task_is_a_line_with_its_end_and_what_it_took() -> None:
    lines = lines_of(
        [result({"q": "2+2?"}, reward=0.5, calls=2, tokens=130), result("plain"), failed("ValueError")]
    )
    assert lines[0].split() == ["task", "reward", "calls", "tokens", "seconds", "end"]
    assert lines[1].split() == ["1", '{"q":', '"2+2?"}', "0.5", "2", "130", "2.50", "succeeded"]
    assert lines[2].split() == ["2", "plain", "-", "0", "0", "2.50", "no", "reward"]
    assert lines[3].split() == ["3", "t", "-", "0", "0", "2.50", "ValueError"]


def test_a_long_task_is_cut_and_a_strange_one_harmless() -> None:
    long, strange = lines_of([result("word " * 50), result("a\x1b[2Jb\n")])[1:3]
    assert "..." in long
    assert "\x1b" not in strange


def test_lines_fit_the_terminal() -> None:
    results = [result("word " * 50, reward=0.12345, calls=12, tokens=12345), failed("APIConnectionError")]
    assert max(len(line) for line in lines_of(results)[:3]) <= 80
    assert len(lines_of(results, width=120)[0]) > len(lines_of(results)[0])


def test_a_traceback_begins_with_the_agents_own_code() -> None:
    ours = str(Path(agl.__file__).parent / "runners" / "attempt.py")
    way = f'Traceback:\n  File "{ours}", line 1\n    run()\n    ^^^\n'
    trace = f'{way}  File "a.py", line 2\n    1 / 0\nZeroDivisionError'
    assert of_the_agent(trace) == ["Traceback:", '  File "a.py", line 2', "    1 / 0", "ZeroDivisionError"]
    only = f'Traceback:\n  File "{ours}", line 1\n    run()\nValueError'
    assert of_the_agent(only) == only.splitlines()


def test_the_first_error_of_each_cause_is_told_with_the_end_of_its_traceback() -> None:
    trace = "\n".join(f"line {number}" for number in range(40))
    text = "\n".join(
        lines_of([failed("ValueError", "a", trace), failed("ValueError", "b"), failed("timeout", "late")])
    )
    assert "task 1: ValueError: a\n" in text
    assert "  line 39" in text
    assert "line 10\n" not in text
    assert "ValueError: b" not in text
    assert "task 3: timeout: late" in text


def test_an_agent_without_its_model_is_told_how_to_give_one() -> None:
    text = "\n".join(lines_of([failed("missing_resource", "no llm", "Traceback")]))
    assert "policy.path=NAME, inference=external or proxy.endpoints" in text
    assert "Traceback" not in text


def test_the_summary_counts_every_end_and_means_rewards_only() -> None:
    results = [
        result(1, reward=1.0, calls=2, tokens=100),
        result(2, reward=0.0, calls=1, tokens=20),
        result(3),
        failed("ValueError"),
        failed("ValueError"),
        failed("timeout"),
        result(4, "cancelled"),
    ]
    assert summary(results) == (
        "7 tasks: 3 succeeded, 1 of them without reward, 3 failed (ValueError 2, timeout 1), 1 cancelled,"
        " mean reward 0.5; 3 calls, 120 tokens, 2.5 s"
    )
    assert summary([result(1)]) == "1 task: 1 succeeded, 1 of them without reward; 0 calls, 0 tokens, 2.5 s"
