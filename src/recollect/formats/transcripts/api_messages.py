"""Anthropic messages put together from the lines they were logged on.

Owns the joining of content blocks and the reading of a response's usage; block bytes are
never rewritten. Always holds: a message that one line holds whole, with nothing but role and
content, keeps that line's bytes; results stand before other blocks, as the API demands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.formats.transcripts.records import (
    Fields,
    array_items,
    mapping_of,
    object_fields,
    text_of,
    tokens_of,
)
from recollect.values.request import Usage

_REQUEST_KEYS = frozenset({"role", "content"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One content block: its bytes, its type and the tool call it names."""

    raw: bytes
    type: str | None
    call_id: str | None = None


@dataclass(slots=True, kw_only=True)
class ApiMessage:
    """One message of the request as it grows line by line."""

    role: str
    whole: bytes
    """The message object of its first line."""
    keys: frozenset[str]
    content: bytes
    line: int
    uuid: str
    timestamp: float | None = None
    usage: Usage | None = None
    model: str | None = None
    is_call: bool = False
    """The model wrote it, not the client in its name."""
    blocks: list[Block] = field(default_factory=list)
    additions: int = 0
    answered: set[str] = field(default_factory=set)
    """Ids of the calls whose results it holds."""

    def add(self, blocks: list[Block]) -> list[str]:
        """Take a line's blocks in; gives the ids of the tool calls among them."""
        self.additions += 1
        known = {block.call_id for block in self.blocks if block.type == "tool_use"}
        fresh = [b for b in blocks if b.type != "tool_use" or b.call_id not in known]
        self.blocks += fresh
        return [b.call_id for b in fresh if b.type == "tool_use" and b.call_id is not None]

    def raw(self) -> bytes:
        """The message as a request holds it."""
        if self.additions > 1:
            ordered = sorted(self.blocks, key=lambda block: block.type != "tool_result")
            content = b"[" + b",".join(block.raw for block in ordered) + b"]"
        elif self.keys == _REQUEST_KEYS:
            return self.whole
        else:
            content = self.content
        return b'{"role":"%s","content":%s}' % (self.role.encode(), content)


def content_blocks(content: bytes) -> list[Block]:
    """The blocks of a message's content; a string is one text block."""
    if content.startswith(b'"'):
        return [Block(raw=b'{"type":"text","text":%s}' % content, type="text")]
    blocks = []
    for raw in array_items(content) or []:
        fields = object_fields(raw) or {}
        kind = text_of(fields, "type")
        key = "id" if kind == "tool_use" else "tool_use_id"
        blocks.append(Block(raw=raw, type=kind, call_id=text_of(fields, key)))
    return blocks


def result_ids(blocks: list[Block]) -> list[str]:
    """The calls that these blocks hold results of."""
    return [b.call_id for b in blocks if b.type == "tool_result" and b.call_id is not None]


def usage_of(message: Fields) -> Usage | None:
    """What a response says it used; the API counts cached input apart, we do not."""
    usage = mapping_of(message.get("usage"))
    read = tokens_of(usage, "cache_read_input_tokens")
    written = tokens_of(usage, "cache_creation_input_tokens")
    whole = tokens_of(usage, "input_tokens") + read + written
    output = tokens_of(usage, "output_tokens")
    if not whole and not output:
        return None
    return Usage(
        input_tokens=whole,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
