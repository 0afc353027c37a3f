"""The OpenAPI document, from the table of operations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from agl.store import wire
from agl.store.server.operation import JSON, Body, Operation
from agl.types.record import Identifier, Record

_REF = "#/components/schemas/{model}"
_BINARY: Mapping[str, str] = {"type": "string", "format": "binary"}
_ALWAYS = (
    "bad_request", "unauthorized", "forbidden", "store_changed", "invalid", "too_many_requests", "failed",
    "unavailable",
)  # fmt: skip
_OF_BODIES = ("timeout", "too_large", "unsupported_media_type")
_MEANINGS: Mapping[int, str] = {
    400: "The request cannot be read",
    401: "No token, or a wrong one",
    403: "The token is too narrow, the server only reads, or a browser asks for another site",
    404: "Nothing has that id",
    408: "The body did not arrive in time",
    409: "The change is not legal from the current status, or another store serves here now",
    413: "The body is too large",
    415: "The body's type or encoding is not read",
    422: "A field is wrong",
    429: "Requests under way hold too much memory; try again",
    500: "The server failed; its log says why",
    503: "The store is not available; try again",
}


class Failure(Record):
    """What went wrong."""

    code: str
    """One of a closed set; programs go by it."""
    message: str
    """For people: what, where, and what to do."""


class ErrorAnswer(Record):
    """The body of every answer that is no success."""

    error: Failure


class _Schemas:
    """Collects the schemas of all types in one place."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def of(self, kind: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        """Return the schema of a type; its parts are named in ``found``."""
        schema = TypeAdapter(kind).json_schema(ref_template=_REF, mode=mode)
        _bound_integers(schema)
        self.found.update(schema.pop("$defs", {}))
        return schema


def _bound_integers(schema: Any) -> None:
    """Say of every integer that it has 64 bits, which is what stores keep."""
    if isinstance(schema, list):
        parts = cast("list[Any]", schema)
    elif isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        if fields.get("type") == "integer":
            fields["format"] = "int64"
            fields.setdefault("minimum", -(2**63))
            fields.setdefault("maximum", 2**63 - 1)
        parts = list(fields.values())
    else:
        return
    for part in parts:
        _bound_integers(part)


def document(base: dict[str, Any], operations: Collection[Operation]) -> dict[str, Any]:
    """Return the document of the operations, added to what the framework documents of its own routes."""
    schemas = _Schemas()
    failure = schemas.of(ErrorAnswer, "serialization")
    schemas.found["ErrorAnswer"] = failure
    paths: dict[str, dict[str, Any]] = dict(base.get("paths", {}))
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    known: dict[str, Any] = base.get("components", {})
    components = {
        **known,
        "schemas": {**known.get("schemas", {}), **schemas.found},
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    }
    return {**base, "paths": paths, "components": components}


def _described(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "tags": [operation.path.split("/")[2] if operation.path.startswith("/v1/") else "status"],
        "parameters": [*_path_parameters(operation, schemas), *_query_parameters(operation, schemas)],
        "responses": _responses(operation, schemas),
    }
    if operation.needs_token:
        described["security"] = [{}, {"token": []}]
    if operation.body is not None:
        described["requestBody"] = _request_body(operation.body, schemas)
    return described


def _operation_id(operation: Operation) -> str:
    return re.sub(r"\W+", "_", f"{operation.method.lower()}_{operation.path}").strip("_")


def _path_parameters(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    schema = schemas.of(Identifier, "validation")
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]


def _query_parameters(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    if operation.parameters is None:
        return []
    schema = schemas.of(operation.parameters, "validation")
    required = schema.get("required", ())
    found: list[dict[str, Any]] = []
    for name, field in schema["properties"].items():
        parameter = {"name": name, "in": "query", "required": name in required, **_without_null(field)}
        if name == "attributes":
            parameter = {
                **parameter,
                "content": {JSON: {"schema": parameter.pop("schema")}},
            }
        found.append(parameter)
    return found


def _without_null(field: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter's schema: a parameter is left out instead of null."""
    schema = {key: value for key, value in field.items() if key not in ("title", "description")}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        schema = {**kinds[0], **schema}
    if schema.get("default", 0) is None:
        del schema["default"]
    described = {"description": field["description"]} if "description" in field else {}
    return {"schema": schema, **described}


def _request_body(body: Body, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.of(body.json_kind if body.kind is bytes else body.kind, "validation")
    if body.many:
        schema = {"anyOf": [schema, {"type": "array", "items": schema, "maxItems": wire.MAX_BATCH}]}
    content: dict[str, Any] = {media_type: {"schema": _BINARY} for media_type in body.media_types}
    return {"required": body.required, "content": {**content, JSON: {"schema": schema}}}


def _responses(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    if isinstance(operation.answers, str):
        content: dict[str, Any] = {operation.answers: {"schema": _BINARY}}
    else:
        content = {JSON: {"schema": schemas.of(operation.answers, "serialization")}}
    failed: dict[str, Any] = {JSON: {"schema": {"$ref": _REF.format(model="ErrorAnswer")}}}
    if operation.refused is not None and operation.body is not None:
        failed = {
            media_type: {"schema": {} if media_type == JSON else _BINARY}
            for media_type in operation.body.media_types
        }
        content = {**failed, **content}
    responses: dict[str, Any] = {"200": {"description": "Done", "content": content}}
    codes = (*_ALWAYS, *operation.may, *(_OF_BODIES if operation.body is not None else ()))
    for status in sorted({wire.CODES[code][0] for code in codes}):
        responses[str(status)] = {
            "description": _MEANINGS[status],
            "content": failed,
        }
    return responses
