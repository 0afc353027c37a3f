"""The page at ``/docs``: the OpenAPI document as plain HTML, without scripts and without anything from another host."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, cast

Node = Mapping[str, Any]
POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
"""The page's content security policy: it loads nothing."""
_MAX_DEPTH = 4
_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent) }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2.5rem; text-transform: capitalize } h4 { margin: 1rem 0 .2rem }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .4rem 0; padding: .1rem .8rem }
summary { cursor: pointer; padding: .35rem 0; display: flex; gap: .8rem; align-items: baseline; flex-wrap: wrap }
code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: var(--line); border-radius: .4rem; padding: .6rem .8rem; overflow-x: auto; white-space: pre-wrap }
.verb { min-width: 4rem; font-weight: 700 } .says { opacity: .75 }
table { border-collapse: collapse; width: 100% } td { border-top: 1px solid var(--line); padding: .25rem .6rem .25rem 0;
vertical-align: top } td:first-child { white-space: nowrap }
"""


def docs_page(document: Node) -> str:
    """Return the page for an OpenAPI document."""
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append(_operation(document, verb, path, operation))
    info = document["info"]
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(groups[tag])}" for tag in groups)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])}</h1><p>{escape(info.get('summary', ''))}."
        " For programs: <a href=openapi.json>openapi.json</a> (OpenAPI 3.1).</p>"
        f"{parts}"
    )


def _operation(document: Node, verb: str, path: str, operation: Node) -> str:
    body = operation.get("requestBody")
    sections = [
        _section("Parameters", _parameters(document, operation.get("parameters", ()))),
        "" if body is None else _section("Body", _contents(document, body["content"])),
        _section("Answers", _answers(document, operation["responses"])),
    ]
    return (
        f"<details id='{escape(operation.get('operationId', ''))}'><summary><code class=verb>{verb.upper()}</code>"
        f"<code>{escape(path)}</code><span class=says>{escape(operation.get('summary', ''))}</span></summary>"
        f"{''.join(sections)}</details>"
    )


def _section(title: str, content: str) -> str:
    return f"<h4>{title}</h4>{content}" if content else ""


def _parameters(document: Node, parameters: Any) -> str:
    rows = [
        _row(
            f"<code>{escape(one['name'])}</code>",
            f"<code>{escape(_shape(document, _schema_of(one)))}</code>",
            f"{escape(one.get('description', ''))}{' required' if one.get('required') else ''}",
        )
        for one in parameters
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _schema_of(parameter: Node) -> Node:
    """A parameter's schema; one that is JSON text has it under its media type."""
    contents: Node = parameter.get("content", {})
    return parameter.get("schema") or next(iter(contents.values()))["schema"]


def _contents(document: Node, contents: Node) -> str:
    return "".join(
        f"<p class=says>{escape(kind)}</p><pre>{escape(_shape(document, content.get('schema', {})))}</pre>"
        for kind, content in contents.items()
    )


def _answers(document: Node, answers: Node) -> str:
    good = [
        f"<p>{escape(status)} {escape(answer.get('description', ''))}</p>"
        + _contents(document, answer.get("content", {}))
        for status, answer in answers.items()
        if status < "400"
    ]
    refusals = [
        _row(escape(status), escape(answer.get("description", "")))
        for status, answer in answers.items()
        if status >= "400"
    ]
    return "".join(good) + (f"<table>{''.join(refusals)}</table>" if refusals else "")


def _shape(document: Node, schema: Node, depth: int = 0, inside: tuple[str, ...] = ()) -> str:
    """A schema in a few words or lines: ``text``, ``[integer]``, ``{name?: text, ...}``."""
    reference = schema.get("$ref")
    if reference is not None:
        name = str(reference).rpartition("/")[2]
        if name in inside or depth > _MAX_DEPTH:
            return name
        return _shape(document, document["components"]["schemas"][name], depth, (*inside, name))
    choices = cast("list[Node]", schema.get("anyOf") or schema.get("oneOf") or ())
    if choices:
        return " | ".join(dict.fromkeys(_shape(document, choice, depth, inside) for choice in choices))
    if "enum" in schema:
        return " | ".join(f'"{value}"' for value in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if "properties" in schema:
        return _fields(document, schema, depth, inside)
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items", {})
        return f"[{_shape(document, items, depth, inside)}, ...]"
    if kind == "object":
        values = schema.get("additionalProperties")
        inner = (
            _shape(document, cast("Node", values), depth, inside) if isinstance(values, dict) else "any JSON"
        )
        return f"{{name: {inner}, ...}}"
    names = {"string": "text", "null": "null", None: "any JSON"}
    return names.get(kind, str(kind))


def _fields(document: Node, schema: Node, depth: int, inside: tuple[str, ...]) -> str:
    required = schema.get("required", ())
    margin = "  " * (depth + 1)
    lines = [
        f"{margin}{name}{'' if name in required else '?'}: {_shape(document, field, depth + 1, inside)}"
        for name, field in schema["properties"].items()
    ]
    return "\n".join(["{", *lines, "  " * depth + "}"])
