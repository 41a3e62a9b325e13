"""Anthropic Messages: reading messages and composing rows.

Rules held here (Anthropic's error texts): each `tool_use` is answered by a `tool_result` in
the next message; results come first in it; text blocks are not blank; a user begins and turns
alternate (newer endpoints merge equal roles themselves, compatible hosts refuse them).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recollect.formats.block_types import ANTHROPIC_TYPES
from recollect.formats.blocks import (
    RESULT_TYPES,
    read_block,
    read_content,
    read_wire,
    reword_result,
    wire_flaws,
    word,
)
from recollect.formats.json_text import encode
from recollect.formats.summaries import is_summary
from recollect.values.history import KeptPart, RewordedPart, Slot, SlotPiece, StandIn
from recollect.values.message import (
    CallId,
    Flaw,
    Message,
    Other,
    Part,
    Role,
    Text,
    ToolCall,
)
from recollect.values.model import WireRules
from recollect.values.reason import Cause, Reason

RULES = WireRules(
    format="anthropic",
    alternates=True,
    results_share_a_message=True,
    results_adjacent=True,
    refuses_blank_text=True,
    ids_unique=True,
    provider_calls_answered=True,
)

PLAIN_TYPES = frozenset({"text", "tool_use", "thinking", "redacted_thinking", "image"})
_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
    "user": "user",
}
_OWN_ROLES = frozenset({"assistant", "system", "user"})


class AnthropicCodec:
    """Reads and writes items of `messages`."""

    rules = RULES

    def read(self, raw: bytes) -> Message:
        """One message; roles of other formats are mapped, unknown ones read as the user's."""
        wire = _read_message(raw)
        role = _ROLES.get(word(wire, "role"), "user")
        content = wire.get("content")
        flaws = wire_flaws(raw)
        if word(wire, "role") not in _OWN_ROLES and not flaws:
            flaws = (Flaw(part=None, reason=Reason(Cause.ROLE_FOREIGN)),)
        parts = read_content(content)
        opens: tuple[CallId, ...] = ()
        joins: tuple[CallId, ...] = ()
        if isinstance(content, list) and not _is_plain(content):
            flaws += _flaws(content, role)
            parts = tuple(
                [_linked(part, block) for part, block in zip(parts, content, strict=True)]
            )
            opens, joins = _links(parts)
        return Message(
            role=role,
            parts=parts,
            raw=raw,
            flaws=flaws,
            summary=is_summary(role, parts),
            opens=opens,
            joins=joins,
        )

    def compose(self, slot: Slot) -> bytes:
        """One message out of pieces of one or several."""
        wires: dict[int, Any] = {}
        blocks = [self._block(piece, wires) for piece in slot.pieces]
        envelope = {} if slot.base is None else _wire(slot.base.raw, wires)
        return encode({**envelope, "role": slot.role, "content": blocks})

    def _block(self, piece: SlotPiece, wires: dict[int, Any]) -> Any:
        if isinstance(piece, KeptPart):
            block = _with_id(
                _without_blanks(_source_block(piece.entry.raw, piece.part, wires)), piece.call_id
            )
            return {k: v for k, v in block.items() if k != "caller"} if piece.direct else block
        if isinstance(piece, RewordedPart):
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


def _read_message(raw: bytes) -> dict[str, Any]:
    """A message as this API has it; a `tool` message of OpenAI's becomes the user's result."""
    wire = read_wire(raw)
    call_id = word(wire, "tool_call_id") or word(wire, "tool_use_id")
    if word(wire, "role") != "tool" or not call_id:
        return wire
    result = {"type": "tool_result", "tool_use_id": call_id, "content": wire.get("content") or ""}
    return {"role": "tool", "content": [result]}


def _is_plain(blocks: list[Any]) -> bool:
    """Whether no block needs a closer look; most messages."""
    return all(
        isinstance(block, dict) and block.get("type") in PLAIN_TYPES and "caller" not in block
        for block in blocks
    )


def _flaws(blocks: list[Any], role: Role) -> tuple[Flaw, ...]:
    """Results hold no blank text; the tools that the provider runs are the assistant's."""
    flaws: list[Flaw] = []
    for at, block in enumerate(blocks):
        if not isinstance(block, dict):
            flaws.append(Flaw(part=None, reason=Reason(Cause.BLOCK_NO_OBJECT)))
            continue
        row = ANTHROPIC_TYPES.get(word(block, "type"))
        if block.get("type") in RESULT_TYPES:
            if _without_blanks(block) is not block:
                flaws.append(Flaw(part=None, reason=Reason(Cause.RESULT_BLANK)))
        elif row is not None and row.run_by == "provider" and role != "assistant":
            flaws.append(Flaw(part=at, reason=Reason(Cause.MISPLACED_PART)))
    return tuple(flaws)


def _linked(part: Part, block: Any) -> Part:
    """The part with the call of a provider-run tool that it is, answers, or is made by."""
    if isinstance(part, ToolCall):
        caller = block.get("caller")
        made_by = word(caller, "tool_id") if isinstance(caller, dict) else ""
        return replace(part, caller=CallId(made_by)) if made_by else part
    if not isinstance(part, Other) or not isinstance(block, dict):
        return part
    row = ANTHROPIC_TYPES.get(part.kind)
    if row is None:
        named = word(block, "tool_use_id")
        return replace(part, answers=CallId(named), certain=False) if named else part
    if row.run_by != "provider":
        return part
    named = word(block, row.id_field)
    if row.pair == "call":
        return replace(part, opens=CallId(named))
    return replace(part, answers=CallId(named))


def _links(parts: tuple[Part, ...]) -> tuple[tuple[CallId, ...], tuple[CallId, ...]]:
    """Provider-run calls left open by these parts, and those of other messages they belong to."""
    opened: dict[CallId, None] = {}
    called: set[CallId] = set()
    joined: dict[CallId, None] = {}
    for part in parts:
        if isinstance(part, ToolCall) and part.caller is not None and part.caller not in called:
            joined.setdefault(part.caller)
        if not isinstance(part, Other):
            continue
        if part.opens is not None:
            opened.setdefault(part.opens)
            called.add(part.opens)
        elif part.answers in opened:
            del opened[part.answers]
        elif part.answers is not None:
            joined.setdefault(part.answers)
    return tuple(opened), tuple(joined)


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
        wires[id(raw)] = _read_message(raw)
    return wires[id(raw)]


def _source_block(raw: bytes, part: int, wires: dict[int, Any]) -> Any:
    content = _wire(raw, wires).get("content")
    if isinstance(content, list):
        block = content[part]
        return {"type": "text", "text": block} if isinstance(block, str) else block
    if isinstance(content, str):
        return {"type": "text", "text": content}
    return content
