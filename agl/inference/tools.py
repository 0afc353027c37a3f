"""Find the tool calls in an answer's text, in the form that Hermes and Qwen models write.

    <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>

Source: https://github.com/NousResearch/Hermes-Function-Calling
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

CALL_TAG = "<tool_call>"
"""What begins a call, and ends the answer's own text."""

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


def parse_tool_calls(text: str, *, new_id: Callable[[], str]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text before the first tool call, without the space at its end, and the calls in OpenAI's shape.

    When one of the calls is no JSON object with a name, the whole text is returned and no call: what the model wrote
    must not be lost half-way.
    """
    found = [_function(match.group(1)) for match in _CALL.finditer(text)]
    functions = [function for function in found if function is not None]
    if not functions or len(functions) < len(found):
        return text, []
    calls = [{"id": new_id(), "type": "function", "function": function} for function in functions]
    return text.partition(CALL_TAG)[0].rstrip(), calls


def _function(text: str) -> dict[str, str] | None:
    try:
        call = json.loads(text)
    except ValueError:
        return None
    if not isinstance(call, dict):
        return None
    named = cast("dict[str, Any]", call)
    name, arguments = named.get("name"), named.get("arguments", {})
    if not isinstance(name, str):
        return None
    # Models write the arguments as an object; some write the JSON text that OpenAI's shape has.
    return {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}
