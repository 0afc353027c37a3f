"""Programs of other languages as agents, against a served store, the proxy and a policy that is really sampled."""

import asyncio
import json
import os
import secrets
import signal
import sys
from pathlib import Path

import pytest
from command_runs import TOKEN, processes_with, run_tasks, until
from tiny_policies import byte_tokenizer, write_llama

from agl.agents.command import CommandAgent
from agl.inference.transformers import TransformersEngine
from agl.proxy import LLMProxy
from agl.store.sqlite import InMemoryLightningStore
from agl.types import LLM, PromptTemplate, ProxyLLM
from agl.types.policy import Policy

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
NODE = """
const task = JSON.parse(process.env.AGL_TASK);
const answer = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
  method: "POST",
  headers: {"content-type": "application/json", authorization: `Bearer ${process.env.OPENAI_API_KEY}`},
  body: JSON.stringify({model: process.env.AGL_MODEL, messages: [{role: "user", content: task.question}]}),
});
if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
const text = (await answer.json()).choices[0].message.content;
console.log("the model said", text.length, "characters");
console.log(JSON.stringify({reward: {reward: task.n, length: text.length}}));
"""
BASH = """
set -euo pipefail
body=$(printf '{"model": "%s", "messages": [{"role": "user", "content": "hi"}]}' "$AGL_MODEL")
curl -sS --noproxy '*' --fail-with-body "$OPENAI_BASE_URL/chat/completions" -H "authorization: Bearer $OPENAI_API_KEY" \
  -H 'content-type: application/json' -d "$body" >&2
n=$(printf '%s' "$AGL_TASK" | grep -o '"n": *[0-9]*' | grep -o '[0-9]*$')
printf '{"reward": %s}\n' "$n"
"""
EMITTING = """
import os, agl
task = agl.__name__ and __import__("json").loads(os.environ["AGL_TASK"])
agl.emit_message("hello from outside")
with agl.operation("think", input=task) as work:
    agl.emit_object({"inside": True})
    work.record_output("done")
agl.emit_reward(0.25)
if os.fork() == 0:
    agl.emit_reward({"a": 0.5, "reward": task})
    os._exit(0)
os.wait()
"""

TRACED = """
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
with provider.get_tracer("theirs").start_as_current_span("search", attributes={"hits": 3}):
    pass
provider.shutdown()
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    tokenizer = byte_tokenizer(TEMPLATE, vocabulary=300, texts=["say something", "system user assistant"])
    folder = write_llama(tmp_path_factory.mktemp("policy"), tokenizer, max_position_embeddings=256)
    return Policy(path=str(folder), device="cpu", name="policy")


@pytest.fixture(scope="module")
def agents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    (folder / "agent.mjs").write_text(NODE)
    (folder / "agent.sh").write_text(BASH)
    return {
        "node": CommandAgent(["node", "agent.mjs"], cwd=str(folder)),
        "bash": CommandAgent(["bash", "agent.sh"], cwd=str(folder)),
    }


@pytest.mark.parametrize("language", ["node", "bash"])
async def test_a_program_of_another_language_is_trained_on_what_it_really_asked(policy, agents, language):
    sampling = {"temperature": 1.0, "max_tokens": 16}
    async with (
        TransformersEngine(policy=policy, seed=1) as engine,
        InMemoryLightningStore() as store,
        LLMProxy().serving(store, engine) as server,
    ):
        llm = ProxyLLM(base_url=server.url, model="policy", api_key=server.api_key, sampling=sampling)
        tasks = [{"n": n, "question": f"say something about {n}"} for n in range(4)]
        runs = await run_tasks(agents[language], tasks, resources={"llm": llm}, store=store)
    for n, rollout in enumerate(runs.rollouts):
        assert (rollout.status, rollout.reward, rollout.error) == ("succeeded", n, None)
        (call,) = [span for span in runs.spans[rollout.rollout_id] if span.name.startswith("chat ")]
        assert call.attributes["agl.response_token_ids"]
    if language == "node":
        assert runs.rollouts[1].reward_dimensions["length"] >= 0
        assert runs.output(1).splitlines()[0].startswith("the model said")


async def test_what_a_python_program_emits_reaches_its_attempt_as_soon_as_it_is_emitted(tmp_path):
    (tmp_path / "emits.py").write_text(EMITTING)
    runs = await run_tasks(CommandAgent([sys.executable, "emits.py"], cwd=str(tmp_path)), [3, 4])
    for task, rollout in zip([3, 4], runs.rollouts, strict=True):
        assert (rollout.status, rollout.reward, rollout.error) == ("succeeded", task, None)
        assert rollout.reward_dimensions == {"a": 0.5, "reward": task}
        spans = {span.name: span for span in runs.spans[rollout.rollout_id]}
        root = spans["agl.rollout"]
        assert spans["agl.message"].attributes["agl.message.body"] == "hello from outside"
        assert spans["think"].attributes["agl.operation.input"] == str(task)
        assert spans["agl.object"].parent_id == spans["think"].span_id
        for name in ("agl.message", "think", "agl.object", "agl.reward"):
            assert spans[name].trace_id == root.trace_id
        assert spans["think"].parent_id == spans["agl.message"].parent_id == root.span_id


async def test_spans_of_an_instrumented_program_join_the_attempt_without_being_told_to(tmp_path):
    (tmp_path / "traced.py").write_text(TRACED)
    runs = await run_tasks(CommandAgent([sys.executable, "traced.py"], cwd=str(tmp_path)), [1])
    (rollout,) = runs.rollouts
    assert rollout.error is None
    (span,) = [span for span in runs.spans[rollout.rollout_id] if span.name == "search"]
    assert span.attributes["hits"] == 3


async def test_the_program_is_told_everything_and_no_secret_of_the_runner(tmp_path, monkeypatch):
    monkeypatch.setenv("AGL_STORE_TOKEN", TOKEN)
    monkeypatch.setenv("AGL_CURRENT_ROLE", "runner")
    monkeypatch.setenv("MY_OWN", "kept")
    resources = {
        "policy": LLM(base_url="http://127.0.0.1:1/v1", model="m1", api_key="k1"),
        "judge": LLM(base_url="http://127.0.0.1:2/v1", model="m2", api_key="k2"),
        "ask": PromptTemplate(template="Answer {q}"),
        "limits": {"seconds": 3},
    }
    agent = CommandAgent(["bash", "-c", "env -0"], env={"EXTRA": "ä\n2"}, llm="judge")
    runs = await run_tasks(agent, [{"q": "ü"}], resources=resources)
    (rollout,) = runs.rollouts
    assert rollout.status == "succeeded"
    told = dict(line.partition("=")[::2] for line in runs.output().split("\0"))
    assert json.loads(told["AGL_TASK"]) == {"q": "ü"}
    assert (told["OPENAI_BASE_URL"], told["OPENAI_API_KEY"]) == ("http://127.0.0.1:2/v1", "k2")
    assert (told["ANTHROPIC_BASE_URL"], told["ANTHROPIC_API_KEY"]) == ("http://127.0.0.1:2", "k2")
    assert (told["AGL_MODEL"], told["AGL_PROMPT_TEMPLATE"]) == ("m2", "Answer {q}")
    assert json.loads(told["AGL_RESOURCES"])["limits"] == {"seconds": 3}
    assert json.loads(told["AGL_RESOURCES"])["policy"]["model"] == "m1"
    assert (told["AGL_ROLLOUT_ID"], told["AGL_MODE"]) == (rollout.rollout_id, "train")
    assert told["AGL_STORE_TOKEN"].startswith("agl1.")
    assert told["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] == f"{told['AGL_STORE_URL']}/v1/traces"
    assert f"agl.attempt_id={told['AGL_ATTEMPT_ID']}" in told["OTEL_RESOURCE_ATTRIBUTES"]
    assert (told["MY_OWN"], told["EXTRA"]) == ("kept", "ä\n2")
    assert "AGL_CURRENT_ROLE" not in told
    assert TOKEN not in runs.output()


async def test_a_large_task_comes_in_a_file_that_is_gone_afterwards(tmp_path):
    script = 'wc -c < "$AGL_TASK_FILE"; echo "${AGL_TASK-unset}"; echo "$AGL_TASK_FILE" >&2'
    runs = await run_tasks(CommandAgent(["bash", "-c", script]), ["x" * 300_000])
    assert runs.output().split() == ["300002", "unset"]
    assert not Path(runs.output(stream="stderr").strip()).exists()


async def test_a_failing_program_fails_its_attempt_with_the_end_of_what_it_said():
    script = (
        'echo early >&2; yes noise | head -c 200000 >&2; echo "the cause" >&2; echo \'{"reward": 1}\'; exit 3'
    )
    runs = await run_tasks(CommandAgent(["bash", "-c", script], name="mine"), [1])
    (rollout,) = runs.rollouts
    assert (rollout.status, rollout.reward, rollout.error.cause) == ("failed", None, "CommandError")
    assert rollout.error.message.startswith("mine ended with exit code 3; its standard error ends with:\n")
    assert rollout.error.message.endswith("the cause")
    kept = runs.output(stream="stderr")
    assert kept.startswith("early\n")
    assert "bytes left out" in kept
    assert len(kept) < 70_000


async def test_a_program_that_a_signal_ends_or_that_is_not_there_says_so():
    runs = await run_tasks(CommandAgent(["bash", "-c", "kill -SEGV $$"]), [1])
    assert "bash was ended by SIGSEGV" in runs.rollouts[0].error.message
    with pytest.raises(Exception, match="there is no program 'no-such-program'"):
        await run_tasks(CommandAgent(["no-such-program"]), [1])


async def test_output_that_is_no_text_and_has_no_end_is_survived_in_bounded_memory():
    script = "printf 'begin \\377\\n'; yes 0123456789"
    runs = await run_tasks(CommandAgent(["bash", "-c", script]), [1], timeout_seconds=1)
    assert runs.rollouts[0].error.cause == "timeout"
    text = runs.output()
    assert text.startswith("begin �\n0123456789\n")
    assert len(text) < 70_000
    (span,) = [span for span in runs.spans[runs.rollouts[0].rollout_id] if span.name == "agl.output"]
    assert span.attributes["agl.output.bytes"] > 1_000_000


async def test_nothing_of_a_stopped_program_is_left_whatever_it_started():
    name = f"left-{secrets.token_hex(6)}"
    script = f"""
trap '' TERM
grow() {{ bash -c "trap '' TERM; exec -a {name} sleep 1000" & }}
( setsid bash -c "trap '' TERM; (setsid bash -c 'exec -a {name} sleep 1000' &) ; exec -a {name} sleep 1000" & )
for n in 1 2 3 4 5 6 7 8; do grow; done
echo ready
while true; do grow; sleep 0.02; done
"""
    runs = await run_tasks(CommandAgent(["bash", "-c", script]), [1], timeout_seconds=1.5)
    assert runs.rollouts[0].error.cause == "timeout"
    assert runs.output() == "ready\n"
    assert processes_with(name) == []


async def test_a_program_that_moves_from_process_to_process_is_caught(tmp_path):
    name = f"left-{secrets.token_hex(6)}"
    (tmp_path / name).write_text('sleep 0.01\n[ $(date +%s) -lt $1 ] && setsid bash "$0" $1 &\n')
    script = f"for n in 1 2 3; do setsid bash {name} $(($(date +%s) + 30)) & done; sleep 1000"
    runs = await run_tasks(CommandAgent(["bash", "-c", script], cwd=str(tmp_path)), [1], timeout_seconds=1)
    assert runs.rollouts[0].error.cause == "timeout"
    for _ in range(20):
        assert processes_with(name) == []
        await asyncio.sleep(0.01)  # longer than one of its processes lives


async def test_what_a_program_leaves_behind_when_it_ends_well_is_ended_too():
    name = f"left-{secrets.token_hex(6)}"
    script = f"(setsid bash -c 'exec -a {name} sleep 1000' &); exec -a {name} sleep 1000 & echo '{{\"reward\": 1}}'"
    runs = await run_tasks(CommandAgent(["bash", "-c", script]), [1])
    assert runs.rollouts[0].reward == 1
    assert processes_with(name) == []


RUNNER = """
import asyncio, sys
from command_runs import run_tasks
from agl.agents.command import CommandAgent
asyncio.run(run_tasks(CommandAgent(["bash", "-c", sys.argv[1]]), [1]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_programs_end_with_their_runner_however_that_ends(number):
    name = f"left-{secrets.token_hex(6)}"
    script = f"(setsid bash -c 'exec -a {name} sleep 1000' &); exec -a {name} sleep 1000"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    runner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNNER, script, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: len(processes_with(f"{name} 1000")) >= 2)
        runner.send_signal(number)
        assert await asyncio.wait_for(runner.wait(), 10) != 0
        await until(lambda: processes_with(name) == [], 5)
    finally:
        if runner.returncode is None:
            runner.kill()
            await runner.wait()


async def test_many_programs_run_at_once_and_each_keeps_its_own(tmp_path):
    script = 'echo "$AGL_TASK"; echo "{\\"reward\\": $AGL_TASK}"'
    runs = await run_tasks(CommandAgent(["bash", "-c", script]), list(range(30)), max_concurrency=10)
    assert [rollout.reward for rollout in runs.rollouts] == list(range(30))
    assert [runs.output(n).splitlines()[0] for n in range(30)] == [str(n) for n in range(30)]
