"""The memory tools and their arguments, declared once: the JSON Schema and the check of arguments
use the same types. Wrong arguments never raise an error; the answer explains them, so that the
model can correct the call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from recollect.core.rules.text import clean_text
from recollect.core.values.fact import FactType
from recollect.errors import RecollectError

ToolName: TypeAlias = Literal[
    "memory_search", "memory_get", "memory_store", "memory_recall", "memory_forget"
]

MOST_AROUND: Final = 10  # not measured; bounds one answer
MOST_FORGOTTEN: Final = 20  # a person can still read that many before confirming
_MOST_CHARS: Final = 400_000
"""Arguments longer than this are refused without parsing, because no model writes such a call."""
_SHOWN_CHARS: Final = 120  # not measured; the text may quote the model
_DATE: Final = "a day (2026-02-10) or a moment (2026-02-10T14:30)"


class Arguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a memory tool."""


class SearchArguments(Arguments):
    """Arguments of `memory_search`."""

    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4_000,
            description="What to look for: the question itself, with its names and numbers",
        ),
    ]
    since: Annotated[str, Meta(description=f"Only messages from this time on: {_DATE}")] = ""
    until: Annotated[str, Meta(description=f"Only messages up to this time: {_DATE}")] = ""


class GetArguments(Arguments):
    """Arguments of `memory_get`."""

    id: Annotated[str, Meta(description="The id of a message, as memory_search shows it")] = ""
    path: Annotated[
        str, Meta(description="Or a memory file, as memory_search names it, such as MEMORY.md")
    ] = ""
    line: Annotated[int, Meta(ge=1, description="Of a file: the first line to read")] = 1
    lines: Annotated[int, Meta(ge=1, description="Of a file: about how many lines to read")] = 200
    around: Annotated[
        int,
        Meta(
            ge=0,
            description="Of a message: how many messages before and after it to show, "
            f"at most {MOST_AROUND}",
        ),
    ] = 2
    offset: Annotated[
        int, Meta(ge=0, description="Of a long message: the character to start from")
    ] = 0


class StoreArguments(Arguments):
    """Arguments of `memory_store`."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=100_000,
            description="One or two sentences that can be read alone; a note may be longer",
        ),
    ]
    kind: Annotated[
        Literal["fact", "note"],
        Meta(
            description="fact: a short statement, valid until another replaces it; "
            "note: a longer text that is found by search"
        ),
    ] = "fact"
    type: Annotated[
        FactType | None, Meta(description="Type of the fact. Default: chosen by its words")
    ] = None
    subject: Annotated[
        str, Meta(max_length=200, description="Subject of the fact, such as billing")
    ] = ""
    source: Annotated[str, Meta(description="Id of the message that states the fact")] = ""


class RecallArguments(Arguments):
    """Arguments of `memory_recall`."""

    types: Annotated[
        list[FactType], Meta(description="Only facts of these types. Default: all types")
    ] = []
    about: Annotated[
        str, Meta(max_length=400, description="Only facts about this, such as billing")
    ] = ""
    replaced: Annotated[
        bool, Meta(description="Also facts that were replaced, with their replacements")
    ] = False


class ForgetArguments(Arguments):
    """Arguments of `memory_forget`."""

    ids: Annotated[
        list[str],
        Meta(
            min_length=1,
            max_length=MOST_FORGOTTEN,
            description="The ids of facts or messages, as the other memory tools show them",
        ),
    ]
    with_sources: Annotated[
        bool, Meta(description="Also forget the messages that state the facts")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKind:
    """A memory tool: its name, purpose and arguments."""

    name: str
    description: str
    arguments: type[Arguments]
    example: Mapping[str, Any]

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the JSON Schema of the tool's arguments, without references."""
        _, shapes = msgspec.json.schema_components([self.arguments])
        shape = dict(shapes[self.arguments.__name__])
        for schema_key in ("title", "description"):
            shape.pop(schema_key, None)
        # definitions are sent with every request, so needless defaults are removed
        shape["properties"] = {
            name: {key: value for key, value in field_shape.items() if key != "default" or value}
            for name, field_shape in shape["properties"].items()
        }
        return shape


KINDS: Final[Mapping[str, ToolKind]] = {
    kind.name: kind
    for kind in (
        ToolKind(
            name="memory_search",
            description=(
                "Search earlier messages and tool results, including those that left the context "
                "window, as well as facts and memory files. Use it before "
                "answering whenever the user refers to earlier work, decisions, dates, people, "
                "preferences, values or results that you do not see. Every hit has an id, a "
                "source and a date."
            ),
            arguments=SearchArguments,
            example={"query": "Which port does billing use?", "since": "2026-02-10"},
        ),
        ToolKind(
            name="memory_get",
            description=(
                "Read one whole message by its id, with the messages around it, or lines of a "
                "memory file by its path. Use it when a hit of memory_search is cut off or its "
                "surroundings matter."
            ),
            arguments=GetArguments,
            example={"id": "214-8f0c"},
        ),
        ToolKind(
            name="memory_store",
            description=(
                "Keep something for later conversations: a fact (a decision, a preference, a "
                "setting) or a longer note. Use it when the user asks to remember something, or "
                "when something was settled that will be needed again. What you store counts as "
                "your statement, not the user's."
            ),
            arguments=StoreArguments,
            example={"text": "Billing stores amounts in cents.", "type": "decision"},
        ),
        ToolKind(
            name="memory_recall",
            description=(
                "List known facts by type, subject and time, such as all decisions about billing "
                "since March. For anything that is not a list of facts use memory_search."
            ),
            arguments=RecallArguments,
            example={"types": ["decision"], "about": "billing"},
        ),
        ToolKind(
            name="memory_forget",
            description=(
                "Forget facts or messages permanently, when the user asks for it. The user is "
                "asked to confirm."
            ),
            arguments=ForgetArguments,
            example={"ids": ["214-8f0c"]},
        ),
    )
}


def describe_problem(kind: ToolKind, problem: RecollectError) -> str:
    """Write the answer about wrong arguments, which quotes no memory and has no mark of recall."""
    shape = kind.parameters
    required_names = shape.get("required", [])
    takes = ", ".join(
        f"{name} ({_accept(field_shape)}{', required' * (name in required_names)})"
        for name, field_shape in shape["properties"].items()
    )
    example = json.dumps(dict(kind.example), ensure_ascii=False)
    return f"{kind.name} was not carried out: {problem}. It takes {takes}. Example: {example}"


def read_arguments(kind: ToolKind, call_input: Mapping[str, Any] | str | bytes | None) -> Arguments:
    """Parse the arguments of a call, given as an object or as the provider's JSON. Raise
    RecollectError if the tool cannot use them."""
    if isinstance(call_input, str | bytes):
        if len(call_input) > _MOST_CHARS:
            raise RecollectError("the arguments are too long")
        try:
            call_input = json.loads(call_input or "{}")
        except (ValueError, RecursionError):
            raise RecollectError("the arguments must be valid JSON") from None
    if call_input is None:
        call_input = {}
    if not isinstance(call_input, Mapping):
        raise RecollectError("the arguments must be a JSON object")
    # some models send null for missing arguments
    values_by_name = {str(name): value for name, value in call_input.items() if value is not None}
    try:
        read = msgspec.convert(values_by_name, kind.arguments, strict=False)
    except msgspec.ValidationError as error:
        text = clean_text(" ".join(str(error).split()))[:_SHOWN_CHARS]
        raise RecollectError(text) from None
    except (RecursionError, OverflowError, ValueError):
        raise RecollectError("the arguments are malformed") from None
    for name in read.__struct_fields__:
        value = getattr(read, name)
        if isinstance(value, str):
            setattr(read, name, clean_text(value).strip())
    return read


def _accept(shape: Mapping[str, Any]) -> str:
    shapes = [
        item_shape for item_shape in shape.get("anyOf", [shape]) if item_shape.get("type") != "null"
    ]
    item_shape = shapes[0].get("items", shapes[0])
    accepted_type = str(item_shape.get("type"))
    if "enum" in item_shape:
        accepted_type = " | ".join(map(str, item_shape["enum"]))
    return f"list of {accepted_type}" if "items" in shapes[0] else accepted_type


def moment(text: str, *, end: bool = False) -> float | None:
    """Parse a day or a time in UTC as seconds since the epoch; None for an empty text. A day means
    the day's start, or with `end` the day's end."""
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text[:40])
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        if end and len(text) <= len("2026-02-10"):
            instant += timedelta(days=1)
        return instant.timestamp()
    except (ValueError, OverflowError, OSError):
        raise RecollectError(f"{text[:40]!r} is not a date; give {_DATE}.") from None
