"""OpenAI Responses: reading input items and composing rows.

Rules held here (OpenAI's error texts): every call item has one output item behind it; an
output has its call, unless the provider holds earlier items itself; a reasoning item is
followed by the item it led to. Items are small: most messages have exactly one part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recollect.formats.block_types import RESPONSES_TYPES, BlockType
from recollect.formats.blocks import (
    read_arguments,
    read_content,
    read_result_content,
    read_wire,
    reword_result,
    wire_flaws,
    without_cache_marks,
    word,
)
from recollect.formats.json_text import canonical, encode
from recollect.formats.summaries import is_summary
from recollect.values.history import KeptPart, OwnText, RewordedPart, Slot, StandIn
from recollect.values.message import (
    CallId,
    Flaw,
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.values.model import WireRules
from recollect.values.reason import Cause, Reason

ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Where a call's arguments stand; by the schema they are strings."""
TEXT_ANSWERED = frozenset(ARGUMENTS)
"""Calls whose output may be plain text; the others want structures we do not invent."""

TEXT_OUTPUTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "computer_call_output",
    }
)

RULES = WireRules(
    format="openai-responses",
    alternates=False,
    results_share_a_message=False,
    results_adjacent=False,
    refuses_blank_text=False,
    thinking_leads=True,
    stand_in_variants=TEXT_ANSWERED,
)

_ROLES: dict[str, Role] = {"assistant": "assistant", "developer": "system", "system": "system"}


class OpenAIResponsesCodec:
    """Reads and writes items of `input`."""

    rules = RULES

    def read(self, raw: bytes) -> Message:
        """One item: a message, a call, an output, reasoning, or something we only carry."""
        wire = read_wire(raw)
        kind = word(wire, "type") or ("message" if "role" in wire else "item_reference")
        row = RESPONSES_TYPES.get(kind)
        if kind == "message":
            role = _ROLES.get(word(wire, "role"), "user")
            content = read_content(wire.get("content"))
            return Message(
                role=role,
                parts=content,
                raw=raw,
                flaws=wire_flaws(raw),
                summary=is_summary(role, content),
                wire_id=_text(wire, "id"),
            )
        run_by = "" if row is None or _is_hosted(wire, kind) else row.run_by
        if row is not None and run_by == "client" and row.pair == "call":
            parts: tuple[Part, ...] = (_call(wire, kind),)
            return Message(
                role="assistant",
                parts=parts,
                raw=raw,
                flaws=_call_flaws(wire, kind),
                wire_id=_text(wire, "id"),
                joins=() if (made_by := _made_by(wire)) is None else (made_by,),
            )
        if row is not None and run_by == "client" and row.pair == "result":
            missing = Flaw(part=None, reason=Reason(Cause.OUTPUT_MISSING))
            flaws = (missing,) if kind in TEXT_OUTPUTS and wire.get("output") is None else ()
            return Message(role="tool", parts=(_result(wire),), raw=raw, flaws=flaws)
        part = _carried(wire, kind, row)
        opens = part.opens if isinstance(part, Other) else None
        joins = part.answers if isinstance(part, Other) else None
        return Message(
            role="assistant" if row is None or row.run_by == "client" else row.said_by,
            parts=(part,),
            raw=raw,
            summary=is_summary("assistant", (part,)),
            wire_id=None if kind == "item_reference" else _text(wire, "id"),
            opens=() if opens is None else (opens,),
            joins=() if joins is None else (joins,),
        )

    def compose(self, slot: Slot) -> bytes:
        """One item with its text changed or some content gone, or one of our own."""
        if slot.base is None:
            return self._own(slot)
        wire = read_wire(slot.base.raw)
        if slot.anonymous:
            wire.pop("id", None)
        if any(isinstance(piece, KeptPart) and piece.direct for piece in slot.pieces):
            wire.pop("caller", None)
        name = ARGUMENTS.get(str(wire.get("type")))
        if name is not None and not isinstance(wire.get(name), str):
            wire[name] = read_arguments(wire.get(name))
        is_message = "content" in wire and (wire.get("type") or "message") == "message"
        if not is_message and slot.base.role != "tool":
            return encode(wire)
        if slot.base.role == "tool":
            if wire.get("output") is None and wire.get("type") in TEXT_OUTPUTS:
                wire["output"] = ""
            for piece in slot.pieces:
                if isinstance(piece, RewordedPart):
                    wire["output"] = reword_result(wire.get("output"), piece.text)
            return encode(wire)
        content = wire.get("content")
        blocks = content if isinstance(content, list) else [content]
        wire["content"] = [
            _block(piece, blocks, slot.role)
            for piece in slot.pieces
            if not isinstance(piece, StandIn)
        ]
        return encode(wire)

    def _own(self, slot: Slot) -> bytes:
        piece = slot.pieces[0]
        if isinstance(piece, StandIn):
            kind = f"{piece.call.variant}_output"
            call_id = piece.call.id.removeprefix(f"{piece.call.variant}:")
            return encode({"type": kind, "call_id": call_id, "output": piece.text})
        texts = [piece.text for piece in slot.pieces if isinstance(piece, OwnText)]
        block = {"type": _text_type(slot.role), "text": "\n\n".join(texts)}
        return encode({"type": "message", "role": slot.role, "content": [block]})


def _block(piece: KeptPart | RewordedPart | OwnText, blocks: list[Any], role: Role) -> Any:
    if isinstance(piece, OwnText):
        return {"type": _text_type(role), "text": piece.text}
    block = blocks[piece.part]
    if isinstance(block, str):
        block = {"type": _text_type(role), "text": block}
    return {**block, "text": piece.text} if isinstance(piece, RewordedPart) else block


def _text_type(role: Role) -> str:
    return "output_text" if role == "assistant" else "input_text"


def _text(wire: dict[str, Any], name: str) -> str | None:
    value = wire.get(name)
    return value if isinstance(value, str) and value else None


def _call_id(wire: dict[str, Any]) -> str:
    """What ties an output to its call: `call_id`, and the kind, since each has its own output.

    A local shell's items may name the call in `id` alone. Codex answers them with function
    outputs, which is what a result's alternative is for.
    """
    kind = word(wire, "type")
    row = RESPONSES_TYPES.get(kind)
    kind = row.answers[0] if row is not None and row.answers else kind
    named = _text(wire, "call_id")
    if kind == "local_shell_call":
        named = named or _text(wire, "id")
    return named or "" if not named or kind == "function_call" else f"{kind}:{named}"


def _call_flaws(wire: dict[str, Any], kind: str) -> tuple[Flaw, ...]:
    name = ARGUMENTS.get(kind)
    if name is None or isinstance(wire.get(name), str):
        return ()
    return (Flaw(part=None, reason=Reason(Cause.ARGUMENTS_NO_STRING)),)


def _call(wire: dict[str, Any], kind: str) -> ToolCall:
    given = next(
        (wire[n] for n in ("arguments", "input", "action", "operation") if n in wire), None
    )
    return ToolCall(
        id=CallId(_call_id(wire)),
        name=str(wire.get("name") or kind.removesuffix("_call")),
        arguments=read_arguments(given),
        variant=kind,
        caller=_made_by(wire),
    )


def _is_hosted(wire: dict[str, Any], kind: str) -> bool:
    """Whether the provider searched for tools by itself: such items name no call."""
    return kind in ("tool_search_call", "tool_search_output") and (
        wire.get("execution") == "server" or not wire.get("call_id")
    )


def _made_by(wire: dict[str, Any]) -> CallId | None:
    """The program that made a call, by the id that its own item opens."""
    caller = wire.get("caller")
    named = word(caller, "caller_id") if isinstance(caller, dict) else ""
    return CallId(f"program:{named}") if named else None


def _result(wire: dict[str, Any]) -> ToolResult:
    call_id = _call_id(wire)
    alternative = None
    if word(wire, "type") == "function_call_output" and call_id:
        alternative = CallId(f"local_shell_call:{call_id}")
    return ToolResult(
        call_id=CallId(call_id),
        content=read_result_content(wire.get("output")),
        alternative=alternative,
    )


def _carried(wire: dict[str, Any], kind: str, row: BlockType | None) -> Part:
    if kind == "reasoning":
        summary = wire.get("summary")
        texts = [part.text for part in read_content(summary) if isinstance(part, Text)]
        sealed = wire.get("encrypted_content")
        return Thinking(text="\n".join(texts), sealed=sealed if isinstance(sealed, str) else None)
    carried = Other(kind=kind, payload=canonical(without_cache_marks(wire)))
    named = "" if row is None or row.run_by == "client" else word(wire, row.id_field)
    if row is None or not named:
        return carried
    if row.pair == "call":
        return replace(carried, opens=CallId(f"{kind}:{named}"))
    link = CallId(f"{row.answers[0]}:{named}")
    return replace(carried, answers=link, certain=row.pair == "result")
