"""What a JSON schema is called and how firmly a provider may hold an answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ANSWER_NAME: Final = "answer"
"""The name that providers ask for, of the schema or of the tool that stands for it."""


def named_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as OpenAI's wires name it: firm where it is written for that."""
    return {"name": ANSWER_NAME, "schema": schema, "strict": is_closed(schema)}


def is_closed(schema: Any) -> bool:
    """Whether every object allows its own fields only and demands all: OpenAI's `strict`."""
    if isinstance(schema, list):
        return all(is_closed(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, Mapping):
        required = schema.get("required")
        fields = set(properties) if isinstance(properties, Mapping) else set()
        demanded = set(required) if isinstance(required, list) else set()
        if schema.get("additionalProperties") is not False or demanded != fields:
            return False
    return all(is_closed(value) for value in schema.values())
