"""A tool and its answer: the same for every wire format.

A failing tool reports it in its result; it never raises because of the model's arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.core.formats.codec import tool_definition
from recollect.core.values.model import FormatName

CUT_OFF = (
    "Not run: the reply reached the output limit, so this call may be cut off. Ask again with less "
    "at once, for example a file in several parts."
)
"""The result of a call whose reply ended at the provider's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """The answer of a tool."""

    text: str = field(repr=False)
    is_error: bool = False
    images: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Media type and base64 data."""
    details: Mapping[str, Any] | None = field(default=None, repr=False)
    """For a display; never shown to the model."""

    def content(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": self.text}] if self.text else []
        blocks.extend({"type": "image", "data": d, "mimeType": m} for m, d in self.images)
        return blocks


def failed(text: str) -> ToolOutcome:
    return ToolOutcome(text=text, is_error=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(repr=False)
    """JSON schema of its arguments."""
    run: Callable[[Mapping[str, Any]], Awaitable[ToolOutcome]] = field(repr=False)


def wire_tool(tool: Tool, format_name: FormatName) -> dict[str, Any]:
    return tool_definition(format_name, tool.name, tool.description, tool.parameters)


def schema(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: dict(shape) for name, shape in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def text_argument(arguments: Mapping[str, Any], name: str) -> str | None:
    """Read an argument that must be a string; None for anything else."""
    value = arguments.get(name)
    return value if isinstance(value, str) else None


def number_argument(arguments: Mapping[str, Any], name: str) -> int | None:
    """Read an argument that must be a whole number; some models write it as text."""
    value = arguments.get(name)
    if isinstance(value, str) and value.strip().isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
