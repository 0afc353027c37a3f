"""PromptTemplate: a prompt with placeholders, in one of three template languages, and what it was made from."""

from __future__ import annotations

import difflib
import hashlib
import re
import string
from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field

from agl.errors import InvalidRequestError, require_extra
from agl.types.record import Record

TemplateEngine = Literal["f-string", "jinja2", "poml"]

_POML_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_FIRST_NAME = re.compile(r"\s*([A-Za-z_]\w*)")


class PromptTemplate(Record):
    """A prompt with placeholders.

    ``f-string`` knows plain ``{name}`` (``{{`` is a brace); ``jinja2`` renders in a sandbox, since optimizers write
    templates too; ``poml`` is Microsoft's markup language, rendered by Node in about a second: for long prompts
    that are rarely rendered, and only for templates that you trust, since it runs their expressions.
    """

    kind: Literal["prompt_template"] = "prompt_template"
    template: str
    engine: TemplateEngine = "f-string"
    version: int = Field(default=1, ge=1)
    """1 is what a person wrote; each change made from it counts one more."""
    parent: str | None = None
    """The ``template_id`` that this one was made from."""

    @property
    def template_id(self) -> str:
        """Twelve hex digits that stand for engine and text: equal prompts have equal ids, wherever they come from."""
        return hashlib.sha256(f"{self.engine}\0{self.template}".encode()).hexdigest()[:12]

    @property
    def placeholders(self) -> frozenset[str]:
        """The names that ``format`` needs.

        Raises:
            InvalidRequestError: the text is no template of its engine.
        """
        try:
            return _PLACEHOLDERS[self.engine](self.template)
        except (ValueError, SyntaxError) as error:
            raise InvalidRequestError(f"not a template of {self.engine}: {error}") from error

    def format(self, **values: object) -> str:
        """Return the prompt with its placeholders filled in.

        Raises:
            KeyError: a placeholder has no value.
            InvalidRequestError: the text is no template of its engine.
            MissingExtraError: the engine is not installed.
        """
        if self.engine == "poml":
            return poml_text(self.template, values)
        if self.engine == "jinja2":
            return _rendered_by_jinja(self.template, values)
        missing = sorted(self.placeholders - values.keys())
        if missing:
            raise KeyError(*missing)
        return self.template.format(**values)

    def changed_to(self, template: str) -> PromptTemplate:
        """Return a new version with this text, made from this one."""
        return PromptTemplate(
            template=template, engine=self.engine, version=self.version + 1, parent=self.template_id
        )

    def diff(self, other: PromptTemplate) -> str:
        """Return what changed from this prompt to the other as a unified diff, empty when nothing did."""
        lines = difflib.unified_diff(
            self.template.splitlines(),
            other.template.splitlines(),
            f"{self.template_id} (version {self.version})",
            f"{other.template_id} (version {other.version})",
            lineterm="",
        )
        return "\n".join(lines)


def poml_text(markup: str, context: Mapping[str, object]) -> str:
    """Return POML markup as the text of one prompt.

    Raises:
        MissingExtraError: poml is not installed.
        InvalidRequestError: the markup cannot be rendered.
    """
    messages = poml_messages(f"<poml><human-msg>{markup}</human-msg></poml>", context)
    return "\n\n".join(str(message["content"]) for message in messages)


def poml_messages(markup: str, context: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return POML markup as OpenAI chat messages.

    Raises:
        MissingExtraError: poml is not installed.
        InvalidRequestError: the markup cannot be rendered.
    """
    require_extra("POML prompts", "apo", "poml")
    import poml

    try:
        rendered = cast("Any", poml).poml(markup, context=dict(context), format="openai_chat")
    except RuntimeError as error:
        raise InvalidRequestError(f"the POML prompt cannot be rendered: {error}") from error
    return cast("list[dict[str, Any]]", rendered["messages"])


def _f_string_names(template: str) -> frozenset[str]:
    names: set[str] = set()
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        if not name.isidentifier():
            raise ValueError(f"{{{name}}} is no plain name; write {{{{ and }}}} for braces")
        if spec or conversion:
            raise ValueError(f"{{{name}}} has a format; only plain {{name}} is allowed")
        names.add(name)
    return frozenset(names)


def _jinja_names(template: str) -> frozenset[str]:
    sandbox = _sandbox()
    from jinja2 import TemplateError, meta

    try:
        return frozenset(meta.find_undeclared_variables(sandbox.parse(template)))
    except TemplateError as error:
        raise ValueError(str(error)) from error


def _rendered_by_jinja(template: str, values: Mapping[str, object]) -> str:
    sandbox = _sandbox()
    from jinja2 import TemplateError, UndefinedError

    try:
        return str(sandbox.from_string(template).render(**values))
    except UndefinedError as error:
        raise KeyError(str(error)) from error
    except TemplateError as error:
        raise InvalidRequestError(f"the jinja2 prompt cannot be rendered: {error}") from error


def _sandbox() -> Any:
    """Jinja's sandbox: templates may come from a model."""
    require_extra("jinja2 prompts", "apo", "jinja2")
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)


def _poml_names(template: str) -> frozenset[str]:
    """The names that begin its ``{{ expressions }}``, loop variables (``for="x in xs"``) left out."""
    found = {m.group(1) for text in _POML_EXPRESSION.findall(template) if (m := _FIRST_NAME.match(text))}
    loops = re.findall(r"""for=["']\s*(\w+)\s+in\s+(\w+)""", template)
    return frozenset((found - {name for name, _ in loops}) | {source for _, source in loops})


_PLACEHOLDERS = {"f-string": _f_string_names, "jinja2": _jinja_names, "poml": _poml_names}
