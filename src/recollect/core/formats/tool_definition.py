"""How each wire format, and MCP, spells the definition of a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from recollect.core.values.model import FormatName

DefinitionFormat: TypeAlias = FormatName | Literal["mcp"]


def tool_definition(
    format: DefinitionFormat,  # noqa: A002
    name: str,
    description: str,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """A tool as a provider, or an MCP client, wants it described; `parameters` is the JSON Schema
    of its arguments."""
    described = {"name": name, "description": description}
    if format == "anthropic":
        return {**described, "input_schema": dict(parameters)}
    if format == "mcp":
        return {**described, "inputSchema": dict(parameters)}
    if format == "openai-chat":
        return {"type": "function", "function": {**described, "parameters": dict(parameters)}}
    return {"type": "function", **described, "parameters": dict(parameters), "strict": False}
