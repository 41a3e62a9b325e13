"""Codec of OpenAI Responses: items, replies, streams, and pi's messages in this format. Every call
item needs one output item after it, and every reasoning item needs the item that it produced. Item
types are those of openai-python, November 2026."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from recollect.core.formats.blocks import (
    ITEM_SEPARATOR,
    TEXT_TYPES,
    BlockType,
    SourcedMessage,
    WireMessage,
    blocks_of,
    call_id,
    call_type,
    data_address,
    fit_result,
    mapping,
    mappings,
    other_types,
    pair_types,
    read_arguments,
    read_content,
    read_result_content,
    read_wire,
    removal_of,
    result_type,
    reword_answer,
    reworded_block,
    rewrite_flaws,
    text_block,
    text_in,
    thinking_block,
    tool_call_block,
    tool_name,
    wire_flaws,
    without_cache_marks,
    word,
    write_blocks,
)
from recollect.core.formats.json_text import (
    Fields,
    canonical,
    decode,
    encode,
    plain_mapping,
    stringify,
    text_of,
)
from recollect.core.formats.summaries import is_summary
from recollect.core.values.history import KeptPart, OwnText, RewordedPart, Slot, SlotPiece, StandIn
from recollect.core.values.message import (
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
from recollect.core.values.model import CallStarted, ReplyEvent, TextDelta, ThinkingDelta, WireRules
from recollect.core.values.reason import Cause
from recollect.errors import FormatError

ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}

TEXT_ANSWERED = frozenset(ARGUMENTS)
"""Types of calls whose output may be plain text. All other calls need structured output."""

TEXT_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output"}
)
_OTHER_OUTPUTS: Final = {"shell_call_output": list, "computer_call_output": dict}

RULES = WireRules(
    format="openai-responses",
    results_adjacent=False,
    thinking_leads=True,
    ids_unique=True,
    stand_in_variants=TEXT_ANSWERED,
)

_ROLES: dict[str, Role] = {"assistant": "assistant", "developer": "system", "system": "system"}

ROLES: Final = frozenset({*_ROLES, "user"})

ID_CHARACTERS = "A-Za-z0-9_-"

LONGEST_ID = 64
"""OpenAI's limit on `call_id` and on ids of items."""
_write_id = partial(call_id, allowed_chars=ID_CHARACTERS, max_chars=LONGEST_ID)

_REASONING_KEYS = ("id", "type", "summary", "encrypted_content", "content")

RESPONSES_ITEM_TYPES: Final = frozenset(
    {"message", "reasoning", "function_call", "function_call_output", "custom_tool_call"}
    | {"custom_tool_call_output", "local_shell_call", "local_shell_call_output"}
    | {"web_search_call", "file_search_call", "computer_call", "computer_call_output"}
    | {"image_generation_call", "code_interpreter_call", "mcp_call", "mcp_list_tools"}
    | {"item_reference", "compaction"}
)
"""Types that distinguish an item from a message of another format."""
_OWN_TYPES: Final = frozenset({"input_text", "output_text", "input_image"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})

_TEXT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})

_THINKING: Final = frozenset(
    {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
)

_STRETCHES: Final[Mapping[str, tuple[str, str | None, str]]] = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
    "response.function_call_arguments.delta": ("arguments", None, ""),
    "response.custom_tool_call_input.delta": ("input", None, ""),
}

RESPONSES_CALLS: Final = frozenset({"function_call", "custom_tool_call"})

_UNFINISHED = frozenset({"failed", "cancelled", "queued", "in_progress"})
"""States of a reply whose items are not (yet) part of a history."""

BLOCK_TYPES: Final = (
    *other_types("user", "message", "compaction_trigger"),
    *other_types("assistant", "reasoning", "compaction", "item_reference", "agent_message"),
    *other_types("system", "additional_tools", "configuration_update"),
    *other_types("assistant", "file_search_call", "web_search_call", "code_interpreter_call"),
    *other_types("assistant", "image_generation_call", "mcp_list_tools"),
    call_type("function_call", "client", "call_id"),
    result_type(
        "function_call_output",
        "client",
        ("function_call", "local_shell_call"),  # Codex answers its shell calls this way
        "call_id",
        "tool",
    ),
    *pair_types("custom_tool_call", "custom_tool_call_output"),
    *pair_types("local_shell_call", "local_shell_call_output"),
    *pair_types("shell_call", "shell_call_output"),
    *pair_types("apply_patch_call", "apply_patch_call_output"),
    *pair_types("computer_call", "computer_call_output"),
    *pair_types("tool_search_call", "tool_search_output"),
    *pair_types("program", "program_output", "provider"),
    *pair_types("multi_agent_call", "multi_agent_call_output", "provider"),
    call_type("mcp_approval_request", "provider", "id"),
    result_type(
        "mcp_approval_response",
        "provider",
        ("mcp_approval_request",),
        "approval_request_id",
        "user",
    ),
    BlockType(name="mcp_call", answers=("mcp_approval_request",), id_field="approval_request_id"),
)

RESPONSES_TYPES: Final = {row.name: row for row in BLOCK_TYPES}


class OpenAIResponsesCodec:
    """Reads and writes items of `input`."""

    rules = RULES
    api = "openai-responses"
    provider = "openai"

    def assembling(self) -> ResponsesAssembling:
        return ResponsesAssembling()

    def is_event(self, event: Mapping[str, Any]) -> bool:
        return str(event.get("type")).startswith("response.")

    def claims_body(self, body: Fields) -> bool:
        """Detect the format by `input` instead of `messages`."""
        return "input" in body and "messages" not in body

    def claims_message(self, message: Fields) -> bool:
        """Detect the format by an item's type, but not by `message`, which Anthropic uses too."""
        kind = text_of(message, "type")
        return kind in RESPONSES_ITEM_TYPES and (kind != "message" or "model" not in message)

    def claims_block(self, block: Fields) -> bool:
        return text_of(block, "type") in _OWN_TYPES

    def reply_messages(self, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
        if "output" not in fields:
            fields = plain_mapping(fields.get("response"))
        output = fields.get("output")
        status = fields.get("status")
        if not isinstance(output, list | tuple) or status in _UNFINISHED or fields.get("error"):
            return ()
        return tuple([encode(item) for item in map(plain_mapping, output) if item])

    def from_pi(self, history: Sequence[SourcedMessage]) -> list[WireMessage]:
        items: list[WireMessage] = []
        for index, message, is_own in history:
            role = message["role"]
            if role == "assistant":
                wire_items = _write_reply(message, is_own)
            elif role == "toolResult":
                wire_items = [_write_result(message)]
            else:
                content = write_blocks(blocks_of(message), "input_text", _write_image)
                wire_items = (
                    [{"type": "message", "role": "user", "content": content}] if content else []
                )
            items.extend(WireMessage(body=item, source=index) for item in wire_items)
        return items

    def to_pi(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        for item in mappings(reply.get("output")):
            kind = item.get("type")
            if kind == "reasoning":
                texts = [str(part.get("text") or "") for part in mappings(item.get("summary"))]
                blocks.append(thinking_block("\n\n".join(texts), stringify(dict(item))))
            elif kind == "message":
                parts = mappings(item.get("content"))
                text = "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
                signature = {"textSignature": str(item["id"])} if item.get("id") else {}
                if text:
                    blocks.append({**text_block(text), **signature})
            elif kind == "function_call":
                item_id = item.get("id")
                raw_id = str(item.get("call_id") or "")
                joined_id = f"{raw_id}{ITEM_SEPARATOR}{item_id}" if item_id else raw_id
                blocks.append(tool_call_block(joined_id, item.get("name"), item.get("arguments")))
        return blocks

    def as_reply(self, reply: Mapping[str, Any], sent: list[dict[str, Any]]) -> Mapping[str, Any]:
        return {**reply, "output": sent}

    def read(self, raw: bytes) -> Message:
        raw_wire = read_wire(raw)
        kind = _kind_of(raw_wire)
        wire = _fit(raw_wire, kind)
        flaws = (*rewrite_flaws(raw_wire, wire), *_find_removals(wire, kind), *wire_flaws(raw))
        row = RESPONSES_TYPES.get(kind)
        if kind == "message":
            role = _ROLES.get(word(wire, "role"), "user")
            content = read_content(wire.get("content"))
            return Message(
                role=role,
                parts=content,
                raw=raw,
                flaws=flaws,
                summary=is_summary(role, content),
                wire_id=word(wire, "id") or None,
            )
        run_by = "" if row is None or _is_hosted(wire, kind) else row.run_by
        if row is not None and run_by == "client" and row.pair == "call":
            parts: tuple[Part, ...] = (_call(wire, kind),)
            return Message(
                role="assistant",
                parts=parts,
                raw=raw,
                flaws=flaws,
                wire_id=word(wire, "id") or None,
                joins=() if (caller := _caller_of(wire)) is None else (caller,),
            )
        if row is not None and run_by == "client" and row.pair == "result":
            return Message(role="tool", parts=(_result(wire),), raw=raw, flaws=flaws)
        part = _read_other(wire, kind, row)
        opens = part.opens if isinstance(part, Other) else None
        joins = part.answers if isinstance(part, Other) else None
        return Message(
            role="assistant" if row is None or row.run_by == "client" else row.said_by,
            parts=(part,),
            raw=raw,
            flaws=flaws,
            summary=is_summary("assistant", (part,)),
            wire_id=None if kind == "item_reference" else word(wire, "id") or None,
            opens=() if opens is None else (opens,),
            joins=() if joins is None else (joins,),
        )

    def compose(self, slot: Slot) -> bytes:
        if slot.base is None:
            return self._encode_own(slot)
        wire = read_wire(slot.base.raw)
        wire = _fit(wire, _kind_of(wire)) | _rename_call(slot.pieces)
        if slot.anonymous:
            wire.pop("id", None)
        if any(isinstance(piece, KeptPart) and piece.direct for piece in slot.pieces):
            wire.pop("caller", None)
        is_message = "content" in wire and (wire.get("type") or "message") == "message"
        if not is_message and slot.base.role != "tool":
            return encode(wire)
        if slot.base.role == "tool":
            return reword_answer(wire, "output", slot)
        content = wire.get("content")
        blocks = content if isinstance(content, list) else [content]
        written = (reworded_block(piece, blocks, _text_type(slot.role)) for piece in slot.pieces)
        wire["content"] = [block for block in written if block is not None]
        return encode(wire)

    def _encode_own(self, slot: Slot) -> bytes:
        piece = slot.pieces[0]
        if isinstance(piece, StandIn):
            kind = f"{piece.call.variant}_output"
            call_id = piece.call.id.removeprefix(f"{piece.call.variant}:")
            return encode({"type": kind, "call_id": call_id, "output": piece.text})
        texts = [piece.text for piece in slot.pieces if isinstance(piece, OwnText)]
        block = {"type": _text_type(slot.role), "text": "\n\n".join(texts)}
        return encode({"type": "message", "role": slot.role, "content": [block]})


def _kind_of(wire: dict[str, Any]) -> str:
    return word(wire, "type") or ("message" if "role" in wire else "item_reference")


def _rename_call(pieces: Sequence[SlotPiece]) -> dict[str, str]:
    ids = [piece.call_id for piece in pieces if isinstance(piece, KeptPart | RewordedPart)]
    return {"call_id": re.sub(r"^[a-z_]+_call:", "", ids[0])} if ids and ids[0] else {}


def _find_removals(wire: dict[str, Any], kind: str) -> Iterator[Flaw]:
    if not isinstance(wire.get("output"), _OTHER_OUTPUTS.get(kind, object)):
        yield removal_of(0)
    is_answer = wire.get("role") == "assistant" and isinstance(wire.get("content"), list)
    for index, block in enumerate(wire["content"] if is_answer else ()):
        if isinstance(block, dict) and str(block.get("type")).startswith("input_"):
            yield removal_of(index, Cause.MISPLACED_PART)


def _fit(wire: dict[str, Any], kind: str) -> dict[str, Any]:
    """Rewrite the fields of an item that the provider would refuse."""
    fit = dict(wire)
    name = ARGUMENTS.get(kind)
    if name is not None:
        fit["name"] = tool_name(wire.get("name"))
        if not isinstance(wire.get(name), str):
            fit[name] = read_arguments(wire.get(name))
    elif kind == "reasoning" and not isinstance(wire.get("summary"), list):
        fit["summary"] = []
    elif kind in TEXT_OUTPUTS:
        fit["output"] = fit_result(wire.get("output"))
    elif kind == "message" and isinstance(wire.get("content"), list):
        text_type = _text_type(_ROLES.get(word(wire, "role"), "user"))
        fit["content"] = [
            {**block, "type": text_type}
            if type(block) is dict and block.get("type") in TEXT_TYPES
            else block
            for block in wire["content"]
        ]
    return fit


def _text_type(role: Role) -> str:
    return "output_text" if role == "assistant" else "input_text"


def _call_id(wire: dict[str, Any]) -> str:
    """Return `call_id`, prefixed with the kind of call, because each kind has its own output. A
    local shell's call may have only an `id`. Codex sends a function output as its result."""
    kind = word(wire, "type")
    row = RESPONSES_TYPES.get(kind)
    kind = row.answers[0] if row is not None and row.answers else kind
    raw_id = word(wire, "call_id")
    if kind == "local_shell_call":
        raw_id = raw_id or word(wire, "id")
    return raw_id if not raw_id or kind == "function_call" else f"{kind}:{raw_id}"


def _call(wire: dict[str, Any], kind: str) -> ToolCall:
    arguments = next(
        (wire[n] for n in ("arguments", "input", "action", "operation") if n in wire), None
    )
    return ToolCall(
        id=CallId(_call_id(wire)),
        name=str(wire.get("name") or ("" if kind in ARGUMENTS else kind.removesuffix("_call"))),
        arguments=read_arguments(arguments),
        variant=kind,
        caller=_caller_of(wire),
    )


def _is_hosted(wire: dict[str, Any], kind: str) -> bool:
    """Return whether the item is a tool search that the provider runs. Such items name no call."""
    return kind in ("tool_search_call", "tool_search_output") and (
        wire.get("execution") == "server" or not wire.get("call_id")
    )


def _caller_of(wire: dict[str, Any]) -> CallId | None:
    caller = wire.get("caller")
    caller_id = word(caller, "caller_id") if isinstance(caller, dict) else ""
    return CallId(f"program:{caller_id}") if caller_id else None


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


def _read_other(wire: dict[str, Any], kind: str, row: BlockType | None) -> Part:
    if kind == "reasoning":
        texts = [part.text for part in read_content(wire.get("summary")) if isinstance(part, Text)]
        seal = wire.get("encrypted_content")
        return Thinking(text="\n".join(texts), sealed=seal if isinstance(seal, str) else None)
    part = Other(kind=kind, payload=canonical(without_cache_marks(wire)))
    link_id = "" if row is None or row.run_by == "client" else word(wire, row.id_field)
    if row is None or not link_id:
        return part
    if row.pair == "call":
        return replace(part, opens=CallId(f"{kind}:{link_id}"))
    link = CallId(f"{row.answers[0]}:{link_id}")
    return replace(part, answers=link, certain=row.pair == "result")


def _write_image(image: tuple[str, str]) -> dict[str, Any]:
    return {"type": "input_image", "detail": "auto", "image_url": data_address(image)}


def _write_reply(message: Mapping[str, Any], is_own: bool) -> list[dict[str, Any]]:  # noqa: FBT001
    blocks = blocks_of(message)
    thoughts = {id(block): item for block in blocks if is_own and (item := _write_reasoning(block))}
    keeps_ids = bool(thoughts)
    items: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            items.extend([thoughts[id(block)]] if id(block) in thoughts else [])
        elif kind == "toolCall":
            items.append(_write_call(block, keeps_ids=keeps_ids))
        elif text := text_in(block):
            items.append(_write_text(block, text, keeps_ids=keeps_ids))
    has_content = any(item["type"] != "reasoning" for item in items)
    return items if has_content else []  # the API requires an item after reasoning


def _write_reasoning(block: Mapping[str, Any]) -> dict[str, Any] | None:
    signature = block.get("thinkingSignature")
    if block.get("type") != "thinking" or not isinstance(signature, str):
        return None
    try:
        item = decode(signature.encode("utf-8", "surrogatepass"))
    except FormatError:
        return None
    if not isinstance(item, dict) or not item.get("encrypted_content"):
        return None
    return {name: item[name] for name in _REASONING_KEYS if item.get(name) is not None}


def _write_text(block: Mapping[str, Any], text: str, *, keeps_ids: bool) -> dict[str, Any]:
    item: dict[str, Any] = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    name = block.get("textSignature")
    if keeps_ids and isinstance(name, str) and 0 < len(name) <= LONGEST_ID:
        item["id"] = name
        item["status"] = "completed"
    return item


def _write_call(block: Mapping[str, Any], *, keeps_ids: bool) -> dict[str, Any]:
    arguments = block.get("arguments")
    item: dict[str, Any] = {
        "type": "function_call",
        "call_id": _write_id(block.get("id")),
        "name": str(block.get("name") or ""),
        "arguments": encode(arguments if isinstance(arguments, Mapping) else {}).decode(),
    }
    name = str(block.get("id") or "").partition(ITEM_SEPARATOR)[2]
    if keeps_ids and 0 < len(name) <= LONGEST_ID:
        item["id"] = name
    return item


def _write_result(message: Mapping[str, Any]) -> dict[str, Any]:
    content = write_blocks(blocks_of(message), "input_text", _write_image)
    only_text = len(content) == 1 and content[0]["type"] == "input_text"
    output: Any = content[0]["text"] if only_text else content or ""
    return {
        "type": "function_call_output",
        "call_id": _write_id(message.get("toolCallId")),
        "output": output,
    }


class ResponsesAssembling:
    """Assembles one streamed response."""

    def __init__(self) -> None:
        self._items: dict[int, Any] = {}
        self._drafts: dict[int, dict[str, Any]] = {}
        self._opening: Mapping[str, Any] = {}
        self._response: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        """True after the event that contains the whole response."""
        return self._response is not None

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        kind = str(event.get("type"))
        delta = event.get("delta")
        stretch = _STRETCHES.get(kind)
        if stretch is not None and isinstance(delta, str):
            self._extend(stretch, event, delta)
        if kind in _TEXT and isinstance(delta, str) and delta:
            yield TextDelta(text=delta)
        elif kind in _THINKING and isinstance(delta, str) and delta:
            yield ThinkingDelta(text=delta)
        elif kind == "response.output_item.added":
            item = mapping(event.get("item"))
            self._drafts[self._index_of(event)] = dict(item)
            if str(item.get("type")) in RESPONSES_CALLS:
                yield CallStarted(id=responses_call_id(item), name=str(item.get("name", "")))
        elif kind == "response.output_item.done":
            self._items[self._index_of(event)] = event.get("item")
        elif kind == "response.created":
            self._opening = mapping(event.get("response"))
        elif kind in _ENDS:
            self._response = mapping(event.get("response"))

    def reply(self) -> Mapping[str, Any] | None:
        if self._response is None or self._response.get("output"):
            return self._response
        return {**self._response, "output": [self._items[index] for index in sorted(self._items)]}

    def partial(self) -> Mapping[str, Any]:
        """Return the finished items, and the received parts of the others."""
        items = {index: {**item, "status": "incomplete"} for index, item in self._drafts.items()}
        items |= self._items
        output = [items[index] for index in sorted(items)]
        return {**self._opening, "status": "incomplete", "output": output}

    def _index_of(self, event: Mapping[str, Any]) -> int:
        index = event.get("output_index")
        return index if isinstance(index, int) else len(self._items)

    def _extend(
        self, stretch: tuple[str, str | None, str], event: Mapping[str, Any], delta: str
    ) -> None:
        field, kind, name = stretch
        item = self._drafts.setdefault(self._index_of(event), {})
        if kind is None:
            item[field] = str(item.get(field) or "") + delta
            return
        parts = [dict(mapping(part)) for part in item.get(field) or ()]
        number = event.get("summary_index" if field == "summary" else "content_index")
        index = number if isinstance(number, int) and number >= 0 else max(0, len(parts) - 1)
        if index >= len(parts):
            index = len(parts)
            parts.append({"type": kind})
        parts[index][name] = str(parts[index].get(name) or "") + delta
        item[field] = parts


def responses_call_id(item: Mapping[str, Any]) -> str:
    """Return the id that a call's output refers to."""
    return str(item.get("call_id") or item.get("id") or "")
