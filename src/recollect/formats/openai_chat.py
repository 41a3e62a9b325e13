"""OpenAI Chat Completions: reading messages and composing rows.

Rules held here (OpenAI's error texts): an assistant message with `tool_calls` is followed at
once by a `tool` message for each id, and a `tool` message stands nowhere else. The older
`function_call` and `function` role pair by name.
"""

from __future__ import annotations

from typing import Any

from recollect.formats.blocks import (
    read_arguments,
    read_content,
    read_result_content,
    read_wire,
    reword_result,
    wire_flaws,
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
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.values.model import WireRules
from recollect.values.reason import Cause, Reason

RULES = WireRules(
    format="openai-chat",
    alternates=False,
    results_share_a_message=False,
    results_adjacent=True,
    refuses_blank_text=False,
)

LEGACY = "function_call"
SAYS_OTHERWISE = ("tool_calls", LEGACY, "refusal", "audio")
"""What an assistant may say instead of content."""
_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "function": "tool",
    "system": "system",
    "tool": "tool",
    "user": "user",
}


class OpenAIChatCodec:
    """Reads and writes items of `messages`; the order of parts is content, extras, calls."""

    rules = RULES

    def read(self, raw: bytes) -> Message:
        """One message; unknown roles are read as the user's."""
        wire = read_wire(raw)
        role = _ROLES.get(word(wire, "role"), "user")
        if role == "tool":
            empty = Flaw(part=None, reason=Reason(Cause.RESULT_EMPTY))
            flaws = () if wire.get("content") or wire.get("content") == "" else (empty,)
            return Message(role="tool", parts=(_result(wire),), raw=raw, flaws=flaws)
        parts = read_content(wire.get("content"))
        if role == "assistant":
            parts = (*parts, *_extras(wire), *_calls(wire))
        return Message(
            role=role,
            parts=parts,
            raw=raw,
            flaws=_flaws(wire) + wire_flaws(raw),
            summary=is_summary(role, parts),
        )

    def compose(self, slot: Slot) -> bytes:
        """One message with some of its parts changed or gone, or one of our own."""
        if slot.base is None:
            return self._own(slot)
        wire = read_wire(slot.base.raw)
        if slot.base.role == "tool":
            wire["content"] = wire.get("content") or ""
            for piece in slot.pieces:
                if isinstance(piece, RewordedPart):
                    wire["content"] = reword_result(wire.get("content"), piece.text)
            return encode(wire)
        return encode(_rebuilt(wire, slot))

    def _own(self, slot: Slot) -> bytes:
        piece = slot.pieces[0]
        if isinstance(piece, StandIn):
            if piece.call.variant == LEGACY:
                return encode({"role": "function", "name": piece.call.name, "content": piece.text})
            return encode({"role": "tool", "tool_call_id": piece.call.id, "content": piece.text})
        texts = [piece.text for piece in slot.pieces if isinstance(piece, OwnText)]
        return encode({"role": slot.role, "content": "\n\n".join(texts)})


def _flaws(wire: dict[str, Any]) -> tuple[Flaw, ...]:
    """Spellings that the API refuses, and that composing the message anew mends."""
    causes: list[Cause] = []
    if wire.get("tool_calls") == []:
        causes.append(Cause.CALLS_EMPTY)
    if wire.get("content") == []:
        causes.append(Cause.PARTS_EMPTY)
    silent = wire.get("content") is None and not any(wire.get(key) for key in SAYS_OTHERWISE)
    if silent and wire.get("reasoning_content"):
        causes.append(Cause.NO_CONTENT)
    if any(not isinstance(fields.get(name), str) for fields, name in _argument_fields(wire)):
        causes.append(Cause.ARGUMENTS_NO_STRING)
    return tuple([Flaw(part=None, reason=Reason(cause)) for cause in causes])


def _argument_fields(wire: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Where the arguments of each call stand."""
    listed = wire.get("tool_calls")
    holders: list[tuple[Any, str]] = []
    for call in listed if isinstance(listed, list) else ():
        if isinstance(call, dict):
            holders += [(call.get("function"), "arguments"), (call.get("custom"), "input")]
    holders.append((wire.get(LEGACY), "arguments"))
    return [(fields, name) for fields, name in holders if isinstance(fields, dict)]


def _result(wire: dict[str, Any]) -> ToolResult:
    name = wire.get("name") if isinstance(wire.get("name"), str) else None
    if wire.get("role") == "function":
        call_id = CallId(f"{LEGACY}:{name}")
    else:
        call_id = CallId(str(wire.get("tool_call_id") or ""))
    return ToolResult(call_id=call_id, content=read_result_content(wire.get("content")), name=name)


def _extras(wire: dict[str, Any]) -> list[Thinking | Other]:
    parts: list[Thinking | Other] = []
    reasoning = wire.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        parts.append(Thinking(text=reasoning))
    carried = [name for name in ("refusal", "audio") if wire.get(name)]
    return [*parts, *(Other(kind=name, payload=canonical(wire[name])) for name in carried)]


def _calls(wire: dict[str, Any]) -> list[Part]:
    parts: list[Part] = []
    listed = wire.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        if not isinstance(call, dict):
            parts.append(Other(kind="tool_call", payload=canonical(call)))
            continue
        function = call.get("function", call.get("custom"))
        fields = function if isinstance(function, dict) else call
        given = fields.get("arguments", fields.get("input"))
        parts.append(
            ToolCall(
                id=CallId(str(call.get("id") or "")),
                name=str(fields.get("name") or ""),
                arguments=read_arguments(given),
            )
        )
    legacy = wire.get(LEGACY)
    if isinstance(legacy, dict):
        name = str(legacy.get("name") or "")
        parts.append(
            ToolCall(
                id=CallId(f"{LEGACY}:{name}"),
                name=name,
                arguments=read_arguments(legacy.get("arguments")),
                variant=LEGACY,
            )
        )
    return parts


def _rebuilt(wire: dict[str, Any], slot: Slot) -> dict[str, Any]:
    """The message with only the slot's pieces left, each where the format keeps it."""
    content = wire.get("content")
    content_end = len(read_content(content))
    extras = _extras(wire)
    first_call = content_end + len(extras)
    listed = wire.get("tool_calls")
    listed = listed if isinstance(listed, list) else []
    shown = {piece.part for piece in slot.pieces if isinstance(piece, KeptPart | RewordedPart)}
    kept = _content_blocks(content, slot, content_end)
    for fields, name in _argument_fields(wire):
        if not isinstance(fields.get(name), str):
            fields[name] = read_arguments(fields.get(name))
    if "tool_calls" in wire:
        wire["tool_calls"] = [call for at, call in enumerate(listed, first_call) if at in shown]
        if not wire["tool_calls"]:
            del wire["tool_calls"]
    if LEGACY in wire and first_call + len(listed) not in shown:
        del wire[LEGACY]
    for at, extra in enumerate(extras, content_end):
        if at not in shown:
            wire.pop("reasoning_content" if isinstance(extra, Thinking) else extra.kind, None)
    _put_content(wire, kept)
    return wire


def _content_blocks(content: Any, slot: Slot, content_end: int) -> list[Any]:
    """What is left of the content, in the slot's order, with our own text where it stands."""
    blocks = content if isinstance(content, list) else [content]
    kept: list[Any] = []
    for piece in slot.pieces:
        if isinstance(piece, OwnText):
            kept.append({"type": "text", "text": piece.text})
        elif isinstance(piece, KeptPart | RewordedPart) and piece.part < content_end:
            block: Any = blocks[piece.part]
            if isinstance(piece, RewordedPart):
                block = piece.text if isinstance(block, str) else {**block, "text": piece.text}
            kept.append(block)
    return kept


def _put_content(wire: dict[str, Any], kept: list[Any]) -> None:
    """A string stays a string; what is empty becomes null where something else is said."""
    if not kept:
        wire["content"] = None if any(wire.get(key) for key in SAYS_OTHERWISE) else ""
    elif len(kept) == 1 and isinstance(kept[0], str):
        wire["content"] = kept[0]
    else:
        wire["content"] = [
            {"type": "text", "text": block} if isinstance(block, str) else block for block in kept
        ]
