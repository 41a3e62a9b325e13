"""What a tool is and what it answers: the same for every wire format.

A tool that cannot do what it was asked says so in its result; it never raises for what the
model gave it. Reprs never show what was read. The whole of a long output is kept in a private
folder beside the session's transcript, masked and bounded, written only when the command has
ended; a command that was aborted leaves no file, and the folder goes with its session.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.adapters.session.files import outputs_folder, private_folder, write_new_file
from recollect.core.formats.codec import tool_definition
from recollect.core.rules.redaction import redact
from recollect.core.values.model import FormatName
from recollect.system.config.settings import Redaction

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
    return tool_definition(format_name, tool.name, tool.description, tool.parameters)


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


# Where a long output is kept


MAX_BYTES = 16 * 1024 * 1024
"""More of one output is not kept: `yes` prints gigabytes a second."""
_PIECE_CHARS = 1024 * 1024
"""Masked at once; other threads have their turn in between."""
_KEY_BEGINS, _KEY_ENDS = "-----BEGIN", "-----END"


@dataclass(slots=True, kw_only=True)
class Outputs:
    """The folder of the session under way."""

    folder: Path
    redaction: Redaction = field(default_factory=Redaction)

    def follow(self, transcript: Path) -> None:
        """From now on outputs belong to this transcript."""
        self.folder = outputs_folder(transcript)

    def place(self) -> Path:
        """Where the next output may be kept; nothing is there yet."""
        return self.folder / f"{os.urandom(6).hex()}.log"

    def keep(self, path: Path, data: bytes) -> None:
        """Write an output, masked; OSError where the disk does not take it."""
        text = data.decode("utf-8", "surrogateescape")
        if self.redaction.enabled:
            text = "".join(redact(piece, pii=self.redaction.pii).text for piece in _pieces(text))
        private_folder(path.parent)
        write_new_file(path, text.encode("utf-8", "surrogateescape"))


def whole_lines(data: bytes) -> bytes:
    """What was cut off at a limit, up to its last whole line: half a secret is not known as one."""
    return data[: data.rfind(b"\n") + 1] or data


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of whole lines, none of which ends inside a private key."""
    begin = 0
    while begin < len(text):
        end = text.rfind("\n", begin, begin + _PIECE_CHARS) + 1
        if end <= begin or begin + _PIECE_CHARS >= len(text):
            end = len(text)
        opened = text.rfind(_KEY_BEGINS, begin, end)
        if end < len(text) and opened >= 0 and text.find(_KEY_ENDS, opened, end) < 0:
            end = opened if opened > begin else _line_end(text, text.find(_KEY_ENDS, end))
        yield text[begin:end]
        begin = end


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at) if at >= 0 else -1
    return len(text) if end < 0 else end + 1
