"""What a tool is and what it answers: the same for every wire format.

A tool that cannot do what it was asked says so in its result; it never raises for what the
model gave it. Reprs never show what was read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.values.model import FormatName

CUT_OFF = (
    "Not run: the reply reached the output limit, so this call may be cut off. Ask again with less "
    "at once, for example a file in several parts."
)
"""What a call is answered whose reply ended at the provider's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What a tool answered."""

    text: str = field(repr=False)
    is_error: bool = False
    images: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Media type and base64 data."""
    details: Mapping[str, Any] | None = field(default=None, repr=False)
    """For whoever draws it; never shown to the model."""

    def content(self) -> list[dict[str, Any]]:
        """As blocks of a pi message."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": self.text}] if self.text else []
        blocks.extend({"type": "image", "data": d, "mimeType": m} for m, d in self.images)
        return blocks


def failed(text: str) -> ToolOutcome:
    """An answer that says what went wrong and what to do instead."""
    return ToolOutcome(text=text, is_error=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something that the model may ask for."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(repr=False)
    """JSON schema of its arguments."""
    run: Callable[[Mapping[str, Any]], Awaitable[ToolOutcome]] = field(repr=False)


def wire_tool(tool: Tool, format_name: FormatName) -> dict[str, Any]:
    """The tool as a provider wants it described."""
    described = {"name": tool.name, "description": tool.description}
    if format_name == "anthropic":
        return {**described, "input_schema": dict(tool.parameters)}
    if format_name == "openai-chat":
        return {"type": "function", "function": {**described, "parameters": dict(tool.parameters)}}
    return {"type": "function", **described, "parameters": dict(tool.parameters), "strict": False}


def schema(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {name: dict(shape) for name, shape in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def text_given(arguments: Mapping[str, Any], name: str) -> str | None:
    """An argument that is a string; None where it is missing or something else."""
    value = arguments.get(name)
    return value if isinstance(value, str) else None


def number_given(arguments: Mapping[str, Any], name: str) -> int | None:
    """An argument that is a whole number, also where the model wrote it as text."""
    value = arguments.get(name)
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdigit():
        return int(value)
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if isinstance(value, int | float) else None
