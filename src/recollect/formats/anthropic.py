"""Anthropic Messages: reading messages and composing rows.

Rules held here (Anthropic's error texts): each `tool_use` is answered by a `tool_result` in
the next message; results come first in it; text blocks are not blank; a user begins and turns
alternate (newer endpoints merge equal roles themselves, compatible hosts refuse them).
"""

from __future__ import annotations

from typing import Any

from recollect.formats.blocks import (
    RESULT_TYPES,
    read_block,
    read_content,
    read_wire,
    reword_result,
    wire_flaws,
    word,
)
from recollect.formats.json_spans import encode
from recollect.formats.summaries import is_summary
from recollect.values.message import CallId, Flaw, Message, Role, Text
from recollect.values.reason import Cause, Reason
from recollect.values.slot import Kept, Piece, Reworded, Slot, StandIn
from recollect.values.wire import WireRules

RULES = WireRules(
    format="anthropic",
    alternates=True,
    results_share_a_message=True,
    results_adjacent=True,
    refuses_blank_text=True,
    ids_unique=True,
)

PLAIN_TYPES = frozenset({"text", "tool_use", "thinking", "redacted_thinking", "image"})
_ROLES: dict[str, Role] = {"assistant": "assistant", "system": "system", "user": "user"}


class AnthropicCodec:
    """Reads and writes items of `messages`."""

    rules = RULES

    def read(self, raw: bytes) -> Message:
        """One message; unknown roles are read as the user's."""
        wire = read_wire(raw)
        role = _ROLES.get(word(wire, "role"), "user")
        content = wire.get("content")
        flaws = _flaws(content) if isinstance(content, list) else wire_flaws(raw)
        parts = read_content(content)
        return Message(
            role=role, parts=parts, raw=raw, flaws=flaws, summary=is_summary(role, parts)
        )

    def compose(self, slot: Slot) -> bytes:
        """One message out of pieces of one or several."""
        wires: dict[int, Any] = {}
        blocks = [self._block(piece, wires) for piece in slot.pieces]
        envelope = {} if slot.base is None else _wire(slot.base.raw, wires)
        return encode({**envelope, "role": slot.role, "content": blocks})

    def _block(self, piece: Piece, wires: dict[int, Any]) -> Any:
        if isinstance(piece, Kept):
            block = _source_block(piece.entry.raw, piece.part, wires)
            return _with_id(_without_blanks(block), piece.call_id)
        if isinstance(piece, Reworded):
            block = _with_id(_source_block(piece.entry.raw, piece.part, wires), piece.call_id)
            if isinstance(piece.entry.parts[piece.part], Text):
                return {**block, "text": piece.text}
            return {**block, "content": reword_result(block.get("content"), piece.text)}
        if isinstance(piece, StandIn):
            return {
                "type": "tool_result",
                "tool_use_id": piece.call.id,
                "content": piece.text,
                "is_error": True,
            }
        return {"type": "text", "text": piece.text}


def _with_id(block: Any, call_id: CallId | None) -> Any:
    """The block under another id of its call, if it got one."""
    if call_id is None:
        return block
    result_key = next((k for k in ("tool_use_id", "toolUseId", "toolCallId") if k in block), "id")
    key = result_key if block.get("type") in RESULT_TYPES else "id"
    return {**block, key: call_id}


def _flaws(blocks: list[Any]) -> tuple[Flaw, ...]:
    """Server tools must pair within their message; results hold no blank text."""
    flaws: list[Flaw] = []
    waiting: dict[Any, int] = {}
    for at, block in enumerate(blocks):
        if not isinstance(block, dict):
            flaws.append(Flaw(part=None, reason=Reason(Cause.BLOCK_NO_OBJECT)))
            continue
        kind = block.get("type")
        if kind in PLAIN_TYPES or not isinstance(kind, str):
            continue
        if kind == "server_tool_use":
            waiting[block.get("id")] = at
        elif kind in RESULT_TYPES:
            if _without_blanks(block) is not block:
                flaws.append(Flaw(part=None, reason=Reason(Cause.RESULT_BLANK)))
        elif kind.endswith("_tool_result") and waiting.pop(block.get("tool_use_id"), None) is None:
            flaws.append(Flaw(part=at, reason=Reason(Cause.SERVER_RESULT_ALONE)))
    unanswered = Reason(Cause.SERVER_CALL_ALONE)
    flaws.extend(Flaw(part=at, reason=unanswered, allowed_last=True) for at in waiting.values())
    return tuple(flaws)


def _without_blanks(block: Any) -> Any:
    """A result without its blank text blocks; any other block as it is."""
    if not isinstance(block, dict) or block.get("type") not in RESULT_TYPES:
        return block
    content = block.get("content")
    if not isinstance(content, list):
        return block
    kept = [
        inner
        for inner in content
        if not (isinstance(part := read_block(inner), Text) and not part.text.strip())
    ]
    return block if len(kept) == len(content) else {**block, "content": kept}


def _wire(raw: bytes, wires: dict[int, Any]) -> Any:
    if id(raw) not in wires:
        wires[id(raw)] = read_wire(raw)
    return wires[id(raw)]


def _source_block(raw: bytes, part: int, wires: dict[int, Any]) -> Any:
    content = _wire(raw, wires).get("content")
    if isinstance(content, list):
        block = content[part]
        return {"type": "text", "text": block} if isinstance(block, str) else block
    if isinstance(content, str):
        return {"type": "text", "text": content}
    return content
