"""The page for people."""

import re

from agl.store.server import create_app
from agl.store.server.docs_page import docs_page
from agl.store.sqlite import InMemoryLightningStore


def test_every_operation_is_on_the_page_with_what_it_takes_and_answers():
    document = create_app(InMemoryLightningStore()).openapi()
    page = docs_page(document)
    for path, operations in document["paths"].items():
        for verb in operations:
            assert f"{verb.upper()}</code><code>{path}</code>" in page
    assert "worker_id: text" in page
    assert "wait_seconds?: number" in page


def test_the_page_loads_nothing_from_anywhere():
    page = docs_page(create_app(InMemoryLightningStore()).openapi())
    assert not re.search(r"<script|https?:|//|<img|@import|url\(", page)


def test_what_a_document_says_cannot_become_markup():
    text = "<b onclick='x'>"
    page = docs_page({"info": {"title": text}, "paths": {text: {"get": {"summary": text, "responses": {}}}}})
    assert "<b" not in page


def test_a_schema_that_contains_itself_ends():
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}}
    operation = {"requestBody": body, "responses": {}}
    document = {
        "info": {"title": "t"},
        "paths": {"/": {"post": operation}},
        "components": {"schemas": {"Node": node}},
    }
    assert "next?: Node" in docs_page(document)
