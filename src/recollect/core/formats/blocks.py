"""Content blocks of all wire formats and of OpenClaw, read into parts. Reading never raises. An
unknown block becomes `Other` and is passed on unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

from recollect.core.formats.json_text import (
    Fields,
    array_items,
    canonical,
    decode,
    decode_outer,
    encode,
    object_fields,
)
from recollect.core.values.history import KeptPart, OwnText, RewordedPart, Slot, SlotPiece, StandIn
from recollect.core.values.message import (
    UNREADABLE_KINDS,
    CallId,
    Flaw,
    Image,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from recollect.core.values.reason import Cause, Reason
from recollect.errors import FormatError

CALL_TYPES = frozenset({"tool_use", "toolUse", "toolCall", "tool_call", "functionCall"})
RESULT_TYPES = frozenset({"tool_result", "toolResult", "functionResponse"})
TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text"})
IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})
CACHE_MARKS = frozenset({"cache_control", "cachePoint", "prompt_cache_breakpoint"})


def read_wire(raw: bytes) -> dict[str, Any]:
    """Decode one message as an object. Anything but an object is treated as a user's text."""
    value = decode_outer(raw)
    if type(value) is dict:
        return value
    return {"role": "user", "content": value if isinstance(value, str) else canonical(value)}


def word(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def wire_flaws(raw: bytes) -> tuple[Flaw, ...]:
    """Return a flaw if the message is not an object."""
    if raw[:1] == b"{" or raw.lstrip()[:1] == b"{":
        return ()
    return (Flaw(part=None, reason=Reason(Cause.MESSAGE_NO_OBJECT)),)


def read_content(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(text=content),)
    if isinstance(content, list):
        return tuple([read_block(block) for block in content])
    if content is None:
        return ()
    return (read_block(content),)


def read_block(block: Any) -> Part:
    if not isinstance(block, dict):
        return Text(text=block) if isinstance(block, str) else _read_other("value", block)
    kind = word(block, "type")
    if kind in TEXT_TYPES and isinstance(text := block.get("text"), str):
        return Text(text=text)
    if kind in CALL_TYPES:
        return _read_call(block, variant=kind)
    if kind in RESULT_TYPES:
        return _read_result(block)
    if kind in ("thinking", "redacted_thinking"):
        return _read_thinking(block)
    if kind in IMAGE_TYPES:
        return _read_image(block)
    return _read_other(kind or "block", block)


def _read_call(block: Mapping[str, Any], *, variant: str) -> ToolCall:
    nested = block.get("functionCall")
    fields = nested if isinstance(nested, dict) else block
    if "input" in fields:  # Anthropic's form is tested first, because it is the most common
        arguments = fields["input"]
    else:
        keys = [name for name in ("arguments", "args", "params") if name in fields]
        arguments = fields[keys[0]] if keys else None
    return ToolCall(
        id=CallId(_first_text(block, "id", "toolCallId", "toolUseId", "call_id")),
        name=_first_text(fields, "name", "toolName"),
        arguments=read_arguments(arguments),
        variant=variant,
    )


def read_arguments(arguments: Any) -> str:
    """Return a call's arguments as canonical JSON if they are JSON, else as they are."""
    if isinstance(arguments, str):
        try:
            return canonical(decode(arguments.encode("utf-8", "surrogatepass")))
        except (FormatError, UnicodeDecodeError):
            return arguments
    return "{}" if arguments is None else canonical(arguments)


def _read_result(block: Mapping[str, Any]) -> ToolResult:
    name = _first_text(block, "name", "toolName")
    return ToolResult(
        call_id=CallId(_first_text(block, "tool_use_id", "toolUseId", "toolCallId", "id")),
        content=read_result_content(block.get("content", block.get("output"))),
        name=name or None,
        is_error=block.get("is_error") is True or block.get("isError") is True,
    )


def read_result_content(content: Any) -> tuple[Text | Image | Other, ...]:
    """Parse a tool's answer: text, images, and blocks that are passed on unchanged."""
    parts: list[Text | Image | Other] = []
    for part in read_content(content):
        if isinstance(part, Text | Image | Other):
            parts.append(part)
        else:
            parts.append(Other(kind=type(part).__name__, payload=repr(part)))
    return tuple(parts)


def fit_result(content: Any, *, blank: bool = True) -> Any:
    """Remove parts from a result's content that providers refuse: calls, results and thinking,
    parts without text or type, and blank text unless `blank`. Return acceptable content itself."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else canonical(content)
    blocks = [inner for inner in content if _fits_result(read_block(inner), blank=blank)]
    return content if len(blocks) == len(content) else blocks or ""


def _fits_result(part: Part, *, blank: bool) -> bool:
    if isinstance(part, Text):
        return blank or bool(part.text.strip())
    if isinstance(part, Other):
        return part.kind not in UNREADABLE_KINDS
    return isinstance(part, Image)


def rewrite_flaws(wire: Mapping[str, Any], fit: Mapping[str, Any]) -> tuple[Flaw, ...]:
    """Return a flaw that names the fields in which an acceptable value differs from `wire`."""
    if fit is wire or fit == wire:
        return ()
    names = [name for name in {**wire, **fit} if wire.get(name, fit) != fit.get(name, wire)]
    return (Flaw(part=None, reason=Reason(Cause.FIELDS_REWRITTEN, fields=", ".join(names))),)


def removal_of(part: int, cause: Cause = Cause.PART_EMPTY) -> Flaw:
    """Return a flaw that is fixed by removing a part."""
    return Flaw(part=part, reason=Reason(cause))


_BROKEN_INPUT: Final = "INVALID_JSON"
"""Key under which the input of an interrupted call is sent again, as Anthropic recommends."""


def arguments_object(arguments: Any) -> Mapping[str, Any]:
    """Return a call's arguments as an object; text that is no JSON object under `INVALID_JSON`."""
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = decode(arguments.encode("utf-8", "surrogatepass"))
        except FormatError:
            return {_BROKEN_INPUT: arguments}
    if isinstance(arguments, Mapping):
        return arguments
    return {_BROKEN_INPUT: canonical(arguments)} if arguments else {}


_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_QUALIFIED_NAME: Final = re.compile(r"[a-z_]{1,40}(?:[./][a-z_]{1,40}){1,2}")
_UNREADABLE_NAME: Final = "unreadable_name"


def tool_name(name: Any) -> Any:
    """Return a tool's name in a form that providers accept. Only a name such as `functions.read`
    keeps its words: in any other text, a changed character could hide a secret from redaction."""
    if not isinstance(name, str) or _TOOL_NAME.fullmatch(name):
        return name
    if _QUALIFIED_NAME.fullmatch(name):
        return re.sub("[./]", "_", name)
    return _UNREADABLE_NAME


def reword_result(content: Any, text: str) -> Any:
    """Replace the text of a result's content. Blocks other than text do not change."""
    if not isinstance(content, list):
        return text
    first_text: dict[str, Any] | None = None
    other_blocks = []
    for block in content:
        if isinstance(read_block(block), Text):
            if first_text is None and isinstance(block, dict):
                first_text = {**block, "text": text}
        else:
            other_blocks.append(block)
    return [first_text or {"type": "text", "text": text}, *other_blocks]


def reword_answer(wire: dict[str, Any], name: str, slot: Slot) -> bytes:
    """Write a tool's answer, whose content is in the field `name`, in the words of its slot."""
    for piece in slot.pieces:
        if isinstance(piece, RewordedPart):
            wire[name] = reword_result(wire.get(name), piece.text)
    return encode(wire)


def reworded_block(piece: SlotPiece, blocks: Sequence[Any], text_type: str) -> Any:
    """Write a piece of a slot as a block; None for a tool's answer, which is no block."""
    if isinstance(piece, StandIn):
        return None
    block = {"type": text_type} if isinstance(piece, OwnText) else blocks[piece.part]
    if isinstance(block, str):
        block = {"type": text_type, "text": block}
    return block if isinstance(piece, KeptPart) else {**block, "text": piece.text}


def without_cache_marks(value: Any) -> Any:
    """Remove cache marks from the value at any depth."""
    if isinstance(value, dict):
        return {k: without_cache_marks(v) for k, v in value.items() if k not in CACHE_MARKS}
    if isinstance(value, list):
        return [without_cache_marks(item) for item in value]
    return value


def _read_thinking(block: Mapping[str, Any]) -> Thinking:
    signature = _first_text(block, "signature", "thinkingSignature", "data")
    return Thinking(text=_first_text(block, "thinking", "text"), sealed=signature or None)


def _read_image(block: Mapping[str, Any]) -> Image:
    source = block.get("source")
    if isinstance(source, dict):
        return Image(
            media_type=_first_text(source, "media_type") or None,
            data=_first_text(source, "data") or None,
            address=_first_text(source, "url", "file_id") or None,
        )
    if isinstance(block.get("data"), str):
        media_type = _first_text(block, "mimeType", "media_type")
        return Image(media_type=media_type or None, data=block["data"])
    target = block.get("image_url", block.get("file_id"))
    address = target.get("url") if isinstance(target, dict) else target
    if isinstance(address, str) and address.startswith("data:"):
        head, _, data = address.partition(",")
        return Image(media_type=head[5:].partition(";")[0] or None, data=data)
    return Image(media_type=None, data=None, address=address if isinstance(address, str) else None)


def _read_other(kind: str, value: Any) -> Other:
    return Other(kind=kind, payload=canonical(without_cache_marks(value)))


def _first_text(fields: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


ITEM_SEPARATOR = "|"
"""Separator of the two ids that pi stores for an OpenAI Responses call: `call_id|item_id`."""
_HASH_CHARS = 8
"""Hex digits: 32 bits keep the rewritten ids of one request apart, and an id short."""

SourcedMessage: TypeAlias = tuple[int, Mapping[str, Any], bool]
"""A pi message with its position, and whether the model of the request wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireMessage:
    """One message of a request, and the position of the first pi message in it."""

    body: dict[str, Any] = field(repr=False)
    source: int


def blocks_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, Iterable):
        return []
    return [block for block in content if isinstance(block, Mapping)]


def text_in(block: Mapping[str, Any]) -> str:
    text = block.get("text") if block.get("type") == "text" else None
    return text if isinstance(text, str) else ""


def texts_of(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    return [text for block in blocks if (text := text_in(block))]


def images_of(blocks: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [
        (str(block.get("mimeType") or "image/png"), block["data"])
        for block in blocks
        if block.get("type") == "image" and isinstance(block.get("data"), str)
    ]


def write_blocks(
    blocks: Iterable[Mapping[str, Any]],
    text_type: str,
    write_image: Callable[[tuple[str, str]], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Write the texts and images of pi's blocks as blocks of a wire format."""
    wire_blocks: list[dict[str, Any]] = []
    for block in blocks:
        if text := text_in(block):
            wire_blocks.append({"type": text_type, "text": text})
        wire_blocks += map(write_image, images_of([block]))
    return wire_blocks


def data_address(image: tuple[str, str]) -> str:
    """Return an image as the `data:` URL that OpenAI's formats take."""
    return f"data:{image[0]};base64,{image[1]}"


def call_id(raw_id: Any, *, allowed_chars: str, max_chars: int) -> str:
    """Rewrite a call's id if the provider would refuse it. The new id contains a hash of the whole
    old id, so two ids never become the same."""
    full_id = str(raw_id or "")
    name = full_id.partition(ITEM_SEPARATOR)[0]
    if 0 < len(name) <= max_chars and re.fullmatch(f"[{allowed_chars}]+", name):
        return name
    digest = blake2b(full_id.encode("utf-8", "surrogatepass"), digest_size=_HASH_CHARS // 2)
    prefix = re.sub(f"[^{allowed_chars}]", "_", name)[: max_chars - _HASH_CHARS - 1]
    return f"{prefix}_{digest.hexdigest()}"


PairRole: TypeAlias = Literal["call", "result", "neither"]

RunBy: TypeAlias = Literal["client", "provider", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockType:
    """A block or item type of a wire format."""

    name: str
    pair: PairRole = "neither"
    run_by: RunBy = ""
    """Who runs the tool and must send its result: the client or the provider."""
    answers: tuple[str, ...] = ()
    id_field: str = ""
    said_by: Role = "assistant"
    """Role of an item of this type, if the item names no role."""


def call_type(name: str, run_by: RunBy, id_field: str) -> BlockType:
    return BlockType(name=name, pair="call", run_by=run_by, id_field=id_field)


def result_type(
    name: str, run_by: RunBy, answers: tuple[str, ...], id_field: str, said_by: Role
) -> BlockType:
    return BlockType(
        name=name, pair="result", run_by=run_by, answers=answers, id_field=id_field, said_by=said_by
    )


def pair_types(call: str, output: str, run_by: RunBy = "client") -> tuple[BlockType, BlockType]:
    """Describe the block types of a call and its result, which both name the call in `call_id`."""
    role: Role = "tool" if run_by == "client" else "assistant"
    result = result_type(output, run_by, (call,), "call_id", role)
    return call_type(call, run_by, "call_id"), result


def other_types(said_by: Role, *names: str) -> tuple[BlockType, ...]:
    return tuple(BlockType(name=name, said_by=said_by) for name in names)


def first_tool(body: Fields) -> Fields:
    tools = array_items(body.get("tools")) or [b""]
    return object_fields(tools[0]) or {}


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thinking_block(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "thinkingSignature": signature}


def tool_call_block(name_of_call: Any, tool: Any, raw_arguments: Any) -> dict[str, Any]:
    """Make pi's tool call block. Arguments that are not a JSON object are dropped; the tool then
    reports the missing ones."""
    arguments = arguments_object(raw_arguments)
    return {
        "type": "toolCall",
        "id": str(name_of_call or ""),
        "name": str(tool or ""),
        "arguments": {} if _BROKEN_INPUT in arguments else dict(arguments),
    }
