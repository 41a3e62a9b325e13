"""Codec of pi and OpenClaw messages. Unfinished assistant messages are not sent to a model.
Summaries and `bashExecution` messages have no `content`; they are sent as user messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from recollect.core.formats.blocks import (
    arguments_object,
    fit_result,
    mappings,
    read_content,
    read_result_content,
    read_wire,
    reword_answer,
    reworded_block,
    rewrite_flaws,
    wire_flaws,
    word,
)
from recollect.core.formats.json_text import Fields, canonical, encode, text_of
from recollect.core.formats.summaries import is_summary
from recollect.core.values.history import OwnText, RewordedPart, Slot, StandIn
from recollect.core.values.message import (
    CallId,
    Ending,
    Message,
    Other,
    Part,
    Role,
    Text,
    ToolResult,
)
from recollect.core.values.model import WireRules

RULES = WireRules(format="pi")

_OWN_ROLES = frozenset(
    {"toolResult", "bashExecution", "custom", "hookMessage", "branchSummary", "compactionSummary"}
)
SUMMARY_ROLES = frozenset({"compactionSummary", "branchSummary"})
_ROLES: dict[str, Role] = {"assistant": "assistant", "system": "system", "toolResult": "tool"}
ROLES: Final = frozenset({*_OWN_ROLES, *_ROLES, "user"})
_ENDINGS: dict[str, Ending] = {"error": "error", "aborted": "aborted"}


class PiCodec:
    """Reads and writes the messages of pi."""

    rules = RULES

    def claims_body(self, body: Fields) -> bool:
        """Detect the format by the key that pi uses for the system prompt."""
        return "systemPrompt" in body

    def claims_message(self, message: Fields) -> bool:
        """Detect the format by a role that only pi has, or by `stopReason`."""
        return text_of(message, "role") in _OWN_ROLES or "stopReason" in message

    def claims_block(self, block: Fields) -> bool:
        kind = text_of(block, "type")
        if kind == "image":
            return "source" not in block
        return kind == "toolCall" or (kind == "thinking" and "thinkingSignature" in block)

    def reply_messages(self, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
        if fields.get("role") != "assistant" or not fields.get("content"):
            return ()
        return (encode(fields),)

    def read(self, raw: bytes) -> Message:
        wire = read_wire(raw)
        wire_role = word(wire, "role")
        role = _ROLES.get(wire_role, "user")
        parts: tuple[Part, ...]
        if role == "tool":
            parts = (_result(wire),)
        elif wire_role == "bashExecution":
            output = f"$ {wire.get('command', '')}\n{wire.get('output', '')}"
            parts = (Other(kind="bash_output", payload=canonical(output)),)
        elif wire_role in SUMMARY_ROLES:
            parts = (Text(text=str(wire.get("summary") or "")),)
        else:
            parts = read_content(wire.get("content"))
        flaws = [*wire_flaws(raw), *rewrite_flaws(wire, _fit(wire))]
        for block in mappings(wire.get("content")):
            flaws += rewrite_flaws(block, _fit_call(block))
        return Message(
            role=role,
            parts=parts,
            raw=raw,
            ending=_ENDINGS.get(word(wire, "stopReason"), "complete"),
            flaws=tuple(flaws),
            summary=wire_role in SUMMARY_ROLES or is_summary(role, parts),
        )

    def compose(self, slot: Slot) -> bytes:
        if slot.base is None:
            return self._encode_own(slot)
        wire = _fit(read_wire(slot.base.raw))
        if slot.base.role == "tool":
            return reword_answer(wire, "content", slot)
        if "content" not in wire:
            for piece in slot.pieces:
                if isinstance(piece, RewordedPart):
                    wire["summary" if "summary" in wire else "output"] = piece.text
            return encode(wire)
        content = wire["content"]
        blocks = content if isinstance(content, list) else [content]
        written = (reworded_block(piece, blocks, "text") for piece in slot.pieces)
        wire["content"] = [_fit_call(block) for block in written if block is not None]
        return encode(wire)

    def _encode_own(self, slot: Slot) -> bytes:
        piece = slot.pieces[0]
        if isinstance(piece, StandIn):
            return encode(
                {
                    "role": "toolResult",
                    "toolCallId": piece.call.id,
                    "toolName": piece.call.name,
                    "content": [{"type": "text", "text": piece.text}],
                    "isError": True,
                    "timestamp": 0,
                }
            )
        texts = [piece.text for piece in slot.pieces if isinstance(piece, OwnText)]
        content = [{"type": "text", "text": "\n\n".join(texts)}]
        return encode({"role": slot.role, "content": content, "timestamp": 0})


def _fit(wire: dict[str, Any]) -> dict[str, Any]:
    """Rewrite the content of an answer or a result as a list."""
    content, role = wire.get("content"), wire.get("role")
    if role == "toolResult":
        content = fit_result(content)
    if role in ("assistant", "toolResult") and not isinstance(content, list):
        content = [{"type": "text", "text": content}] if content else []
    return {**wire, "content": content} if "content" in wire else wire


def _fit_call(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if block.get("type") != "toolCall" or isinstance(block.get("arguments"), Mapping):
        return block
    return {**block, "arguments": arguments_object(block.get("arguments"))}


def _result(wire: dict[str, Any]) -> ToolResult:
    name = wire.get("toolName")
    return ToolResult(
        call_id=CallId(str(wire.get("toolCallId") or "")),
        content=read_result_content(wire.get("content")),
        name=name if isinstance(name, str) else None,
        is_error=wire.get("isError") is True,
    )
