"""CommandAgent: any program as an agent, told its task by its environment.

| variable | is |
|---|---|
| ``AGL_TASK`` or ``AGL_TASK_FILE`` | the task as JSON; a large one is in the file of that name |
| ``OPENAI_BASE_URL``, ``OPENAI_API_KEY``, ``ANTHROPIC_BASE_URL``, ``ANTHROPIC_API_KEY``, ``AGL_MODEL`` | the model |
| ``AGL_PROMPT_TEMPLATE`` (or ``_FILE``) | the text of the only prompt template |
| ``AGL_RESOURCES`` (or ``_FILE``) | all resources by name, as JSON |
| ``AGL_ROLLOUT_ID``, ``AGL_ATTEMPT_ID``, ``AGL_RUN_ID``, ``AGL_MODE`` | the attempt |
| ``AGL_STORE_URL``, ``AGL_STORE_TOKEN`` | where to record, with a token for this attempt alone |
| ``TRACEPARENT``, ``OTEL_EXPORTER_OTLP_TRACES_*``, ``OTEL_RESOURCE_ATTRIBUTES`` | the same for OpenTelemetry |
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from agl.agents.answer_lines import AnswerLines
from agl.agents.base import Answer, Assignment, MissingResourceError
from agl.agents.programs import GUARD_VARIABLE, OutputPipe, guarded, inherited_environment, program
from agl.errors import AgentError, ConfigError
from agl.tracing.context import current_attempt, traceparent
from agl.tracing.output import record_output
from agl.tracing.plain import clean_text
from agl.types import LLM, PromptTemplate, Resource
from agl.types.attributes import ATTEMPT_ID, ROLLOUT_ID

MAX_VARIABLE_BYTES = 100_000
"""Larger values go into files: Linux takes at most 128 KiB of one variable (MAX_ARG_STRLEN)."""
MAX_STDERR_CHARS = 1_500
"""Of a failed program's standard error in its error message; all that is kept is in the attempt's spans."""


class CommandError(AgentError):
    """The program could not be started, or ended with an exit code that is not 0."""


class CommandAgent:
    """A program in any language as an agent, run once an attempt.

    The reward is in the last line of standard output that is a JSON object with a ``reward``, or emitted to the store,
    or given by a grader, whose ``result`` is the last line of standard output (as JSON where it is JSON). An exit code
    that is not 0 fails the attempt. When the program has ended, or is stopped, all that it started is ended too.

    Args:
        command: the program and its arguments; no shell reads them.
        cwd: where it starts; None is the runner's own folder.
        env: further environment variables.
        llm: the name of the resource that is its model, where there are several.
        name: for traces and messages; by default the program's own.
    """

    def __init__(
        self,
        command: list[str],
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        llm: str | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(command, str) or not command or not all(command[:1]):
            raise ConfigError(f"agent.command={command!r} must be a list: the program, then its arguments")
        self._command, self._cwd, self._env = [str(part) for part in command], cwd, dict(env or {})
        self._llm = llm
        self._name = name or Path(self._command[0]).name
        self._guard: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return CommandAgent, (self._command, self._cwd, self._env, self._llm, self._name)

    @property
    def name(self) -> str:
        """What the agent is called in traces and messages."""
        return self._name

    @property
    def needs_store_url(self) -> bool:
        """The program may want to reach the store: to emit a reward, or to send spans."""
        return True

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Check that there is such a program, and have it end with this process, however that ends.

        Raises:
            ConfigError: there is none.
        """
        _require_program(self._command[0], self._cwd, self._env.get("PATH"))
        async with guarded() as self._guard:
            yield
        self._guard = None

    async def run(self, assignment: Assignment) -> object:
        """Run the program on this attempt's task.

        Raises:
            CommandError: it could not be started or failed.
            MissingResourceError: there are several models, and nothing says which is the program's.
        """
        attempt, lines = current_attempt(), AnswerLines()
        with (
            tempfile.TemporaryDirectory(prefix="agl-") as folder,
            OutputPipe(lines.feed) as stdout,
            OutputPipe() as stderr,
        ):
            environment = self._environment(assignment, Path(folder))
            try:
                async with program(
                    self._command,
                    mark=f"AGL_ATTEMPT_ID={assignment.attempt.attempt_id}",
                    environment=environment,
                    cwd=self._cwd,
                    stdout=stdout.writing,
                    stderr=stderr.writing,
                ) as process:
                    stdout.started()
                    stderr.started()
                    code = await process.wait()
            except (OSError, ValueError) as error:
                raise CommandError(f"{shlex.join(self._command)} cannot be started: {error}") from error
            finally:
                stdout.drain()
                stderr.drain()
                if attempt is not None:
                    record_output(attempt, "stdout", stdout.kept)
                    record_output(attempt, "stderr", stderr.kept)
        if code:
            raise CommandError(f"{self._name} {_ending(code)}{_said(stderr.kept.end(MAX_STDERR_CHARS))}")
        lines.end()
        return Answer(value=lines.last, reward=lines.reward)

    def _environment(self, assignment: Assignment, folder: Path) -> dict[str, str]:
        environment = {
            "PYTHONUNBUFFERED": "1",
            **inherited_environment(),
            **self._env,
            **assignment.environment,
        }
        if self._guard is not None:
            environment[GUARD_VARIABLE] = self._guard
        environment["AGL_ROLLOUT_ID"] = assignment.rollout.rollout_id
        environment["AGL_ATTEMPT_ID"] = assignment.attempt.attempt_id
        for name in ("AGL_TASK", "AGL_RESOURCES", "AGL_PROMPT_TEMPLATE", "AGL_MODEL"):
            environment.pop(name, None)
            environment.pop(f"{name}_FILE", None)
        texts = {
            "AGL_TASK": json.dumps(assignment.rollout.task),
            "AGL_RESOURCES": json.dumps(
                {name: _plain(value) for name, value in assignment.resources.items()}
            ),
        }
        templates = [value for value in assignment.resources.values() if isinstance(value, PromptTemplate)]
        if len(templates) == 1:
            texts["AGL_PROMPT_TEMPLATE"] = clean_text(templates[0].template)
        for name, text in texts.items():
            if len(text.encode()) > MAX_VARIABLE_BYTES:
                file = folder / name.lower()
                file.write_text(text, encoding="utf-8")
                environment[f"{name}_FILE"] = str(file)
            else:
                environment[name] = text
        environment.update(_model(assignment.resources, self._llm))
        environment.update(_telemetry(environment))
        return environment


def _require_program(wanted: str, cwd: str | None, path: str | None) -> None:
    if cwd is not None and not Path(cwd).is_dir():
        raise ConfigError(f"agent.cwd: there is no folder {cwd}")
    place = str(Path(cwd or ".").resolve() / wanted) if "/" in wanted else wanted
    if shutil.which(place, path=path) is None:
        raise ConfigError(f"agent.command: there is no program {wanted!r} that can be started here")


def _model(resources: Mapping[str, Resource], name: str | None) -> dict[str, str]:
    """The variables by which clients of OpenAI and Anthropic find the model."""
    models = {key: value for key, value in resources.items() if isinstance(value, LLM)}
    if name is None and len(models) > 1 and "llm" not in models:
        raise MissingResourceError(
            f"the command's model is one of {', '.join(models)}: say which with agent.llm=NAME"
        )
    if name is not None and name not in models:
        raise MissingResourceError(
            f"the command asks for the model {name!r} (agent.llm); this rollout has {', '.join(models) or 'none'}"
        )
    if not models:
        return {}
    llm = models[name] if name is not None else models.get("llm") or next(iter(models.values()))
    return {
        "OPENAI_BASE_URL": llm.base_url,
        "OPENAI_API_BASE": llm.base_url,
        "OPENAI_API_KEY": llm.api_key,
        "ANTHROPIC_BASE_URL": llm.anthropic_base_url,
        "ANTHROPIC_API_KEY": llm.api_key,
        "AGL_MODEL": llm.model,
    }


def _telemetry(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which OpenTelemetry's exporters find the store; none where the user has others in mind.

    Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter/
    """
    parent = traceparent()
    facts = {} if parent is None else {"TRACEPARENT": parent}
    url = environment.get("AGL_STORE_URL")
    if url is None or {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} & set(
        environment
    ):
        return facts
    ids = {ROLLOUT_ID: environment["AGL_ROLLOUT_ID"], ATTEMPT_ID: environment["AGL_ATTEMPT_ID"]}
    own = [f"{key}={quote(value, safe='')}" for key, value in ids.items()]
    facts["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{url.rstrip('/')}/v1/traces"
    facts["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    facts["OTEL_RESOURCE_ATTRIBUTES"] = ",".join(
        filter(None, [environment.get("OTEL_RESOURCE_ATTRIBUTES"), *own])
    )
    if "AGL_STORE_TOKEN" in environment:
        facts["OTEL_EXPORTER_OTLP_TRACES_HEADERS"] = (
            f"authorization=Bearer%20{environment['AGL_STORE_TOKEN']}"
        )
    return facts


def _plain(value: Resource) -> object:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _said(text: str) -> str:
    return f"; its standard error ends with:\n{text}" if text else ""


def _ending(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
