"""A reply out of the events of its stream, the same for every wire.

Owns the events of Anthropic's Messages, of OpenAI's Chat Completions, with the liberties that
servers of that wire take (calls without an index or all of one index, reasoning under several
names, usage in any chunk, no `[DONE]`), and of OpenAI's Responses. Always holds: what is put
together is what the provider would have sent without streaming: blocks in their order, signatures
whole, inputs of calls parsed, fields nobody knows kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from recollect.errors import FormatError
from recollect.formats.json_text import decode, encode
from recollect.values.model import CallStarted, ReplyEvent, TextDelta, ThinkingDelta

_BROKEN_INPUT: Final = "INVALID_JSON"
"""Holds an input that was cut off: the provider's own advice for sending such a call back."""
_ANTHROPIC_EVENTS: Final = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop"}
    | {"message_delta", "message_stop"}
)
_WHOLE: Final = frozenset({"role", "id", "type", "index", "name", "format"})
"""Fields that come whole, by some servers in every chunk anew; other strings come in stretches."""
_CHAT_THINKING: Final = ("reasoning_content", "reasoning")
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
"""Where a stretch belongs: the field of its item, and the kind of part and its field in that."""
RESPONSES_CALLS: Final = frozenset({"function_call", "custom_tool_call"})


class Assembling(Protocol):
    """A reply that is put together from a stream's events."""

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """What this event adds."""
        ...

    @property
    def complete(self) -> bool:
        """The reply's own end was seen: nothing that may follow changes it."""
        ...

    def reply(self) -> Mapping[str, Any] | None:
        """The reply as it would have come without streaming; None where its end is missing."""
        ...

    def partial(self) -> Mapping[str, Any]:
        """What has come of it, in the same form."""
        ...


class AnthropicAssembling:
    """One message."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._complete = False

    @property
    def complete(self) -> bool:
        """`message_stop` was seen."""
        return self._complete

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """What this event adds."""
        kind = event.get("type")
        index = event.get("index")
        at = index if isinstance(index, int) else 0
        if kind == "message_start":
            self._start(_mapping(event.get("message")))
        elif kind == "content_block_start":
            yield from self._start_block(at, dict(_mapping(event.get("content_block"))))
        elif kind == "content_block_delta":
            yield from self._extend(at, _mapping(event.get("delta")))
        elif kind == "message_delta":
            self._settle(event)
        elif kind == "message_stop":
            self._complete = True

    def reply(self) -> Mapping[str, Any] | None:
        """The message; None before its stop reason is known."""
        return None if self._message.get("stop_reason") is None else self.partial()

    def partial(self) -> Mapping[str, Any]:
        """The blocks that have begun; a call whose input broke off holds it as it was written."""
        content = []
        for at in sorted(self._blocks):
            made = {"input": _input(self._inputs[at])} if at in self._inputs else {}
            content.append({**self._blocks[at], **made})
        return {**self._message, "content": content}

    def _start(self, message: Mapping[str, Any]) -> None:
        self._message = {"type": "message", "role": "assistant", **message}
        content = message.get("content")
        for at, block in enumerate(content if isinstance(content, list) else ()):
            self._blocks[at] = dict(_mapping(block))

    def _start_block(self, at: int, block: dict[str, Any]) -> Iterator[ReplyEvent]:
        self._blocks[at] = block
        if block.get("type") == "tool_use":
            yield CallStarted(id=str(block.get("id", "")), name=str(block.get("name", "")))
        yield from _anthropic_words(block)

    def _extend(self, at: int, delta: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        block = self._blocks.setdefault(at, {"type": "text", "text": ""})
        for name, value in delta.items():
            if name == "partial_json":
                self._inputs[at] = self._inputs.get(at, "") + str(value)
            elif name == "citation":
                block["citations"] = [*(block.get("citations") or ()), value]
            elif name != "type" and isinstance(value, str):
                # text, thinking, signature, and what may come: stretches of a field
                block[name] = str(block.get(name) or "") + value
        yield from _anthropic_words(delta)

    def _settle(self, event: Mapping[str, Any]) -> None:
        """What is known at the end; counts are of the whole message so far."""
        usage = {**_mapping(self._message.get("usage")), **_said(_mapping(event.get("usage")))}
        further = {key: event[key] for key in event if key not in ("type", "delta", "usage")}
        delta = _mapping(event.get("delta"))
        self._message = {**self._message, **further, **delta, "usage": usage}


class ChatAssembling:
    """One completion."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    @property
    def complete(self) -> bool:
        """Never before the stream says so: the usage comes after the last choice."""
        return False

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """What this chunk adds; events are those of the first choice."""
        for name, value in event.items():
            if name not in ("choices", "object") and value is not None:
                self._top[name] = value
        choices = event.get("choices")
        for given in choices if isinstance(choices, list) else ():
            fields = _mapping(given)
            index = fields.get("index", 0)
            at = index if isinstance(index, int) else 0
            events = list(self._choose(at, fields))
            if at == 0:
                yield from events

    def reply(self) -> Mapping[str, Any] | None:
        """The completion; None where a choice has no end."""
        choices = self._choices.values()
        if not choices or any(choice["finish_reason"] is None for choice in choices):
            return None
        return self.partial()

    def partial(self) -> Mapping[str, Any]:
        """The choices that have begun."""
        choices = [self._choices[at] for at in sorted(self._choices)]
        shown = [{**one, "message": _without_indexes(one["message"])} for one in choices]
        return {"object": "chat.completion", **self._top, "choices": shown}

    def _choose(self, at: int, fields: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        message = {"role": "assistant", "content": None}
        empty = {"index": at, "message": message, "finish_reason": None}
        choice = self._choices.setdefault(at, empty)
        for name, value in fields.items():
            if name == "logprobs" and isinstance(value, Mapping):
                choice[name] = dict(choice.get(name) or {})
                _merge(choice[name], value)
            elif name not in ("delta", "message", "index") and value is not None:
                choice[name] = value
        delta = _mapping(fields.get("delta") or fields.get("message"))
        yield from _chat_words(delta)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield from _take_call(choice["message"], _mapping(call))
        _merge(choice["message"], {name: delta[name] for name in delta if name != "tool_calls"})


class ResponsesAssembling:
    """One response."""

    def __init__(self) -> None:
        self._items: dict[int, Any] = {}
        self._begun: dict[int, dict[str, Any]] = {}
        self._created: Mapping[str, Any] = {}
        self._response: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        """The event that carries the whole response was seen."""
        return self._response is not None

    def take(self, event: Mapping[str, Any]) -> Iterator[ReplyEvent]:
        """What this event adds."""
        kind = event.get("type")
        delta = event.get("delta")
        stretch = _STRETCHES.get(str(kind))
        if stretch is not None and isinstance(delta, str):
            self._extend(stretch, event, delta)
        if kind in _TEXT and isinstance(delta, str) and delta:
            yield TextDelta(text=delta)
        elif kind in _THINKING and isinstance(delta, str) and delta:
            yield ThinkingDelta(text=delta)
        elif kind == "response.output_item.added":
            item = _mapping(event.get("item"))
            self._begun[self._place(event)] = dict(item)
            if item.get("type") in RESPONSES_CALLS:
                yield CallStarted(id=responses_call_id(item), name=str(item.get("name", "")))
        elif kind == "response.output_item.done":
            self._items[self._place(event)] = event.get("item")
        elif kind == "response.created":
            self._created = _mapping(event.get("response"))
        elif kind in _ENDS:
            self._response = _mapping(event.get("response"))

    def reply(self) -> Mapping[str, Any] | None:
        """The response; None before its last event."""
        if self._response is None or self._response.get("output"):
            return self._response
        return {**self._response, "output": [self._items[at] for at in sorted(self._items)]}

    def partial(self) -> Mapping[str, Any]:
        """The items that are finished, and what has come of the others."""
        items = {at: {**item, "status": "incomplete"} for at, item in self._begun.items()}
        items |= self._items
        output = [items[at] for at in sorted(items)]
        return {**self._created, "status": "incomplete", "output": output}

    def _place(self, event: Mapping[str, Any]) -> int:
        at = event.get("output_index")
        return at if isinstance(at, int) else len(self._items)

    def _extend(
        self, stretch: tuple[str, str | None, str], event: Mapping[str, Any], delta: str
    ) -> None:
        field, kind, name = stretch
        item = self._begun.setdefault(self._place(event), {})
        if kind is None:
            item[field] = str(item.get(field) or "") + delta
            return
        parts = [dict(_mapping(part)) for part in item.get(field) or ()]
        index = event.get("summary_index" if field == "summary" else "content_index")
        at = index if isinstance(index, int) and index >= 0 else max(0, len(parts) - 1)
        if at >= len(parts):
            at = len(parts)
            parts.append({"type": kind})
        parts[at][name] = str(parts[at].get(name) or "") + delta
        item[field] = parts


def _anthropic_words(fields: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    text, thinking = fields.get("text"), fields.get("thinking")
    if text and isinstance(text, str):
        yield TextDelta(text=text)
    if thinking and isinstance(thinking, str):
        yield ThinkingDelta(text=thinking)


def _input(written: str) -> Any:
    if not written.strip():
        return {}
    try:
        return decode(written.encode("utf-8", "surrogatepass"))
    except FormatError:
        return {_BROKEN_INPUT: written}


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _without_indexes(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message whose calls no longer say which of them they are."""
    if "tool_calls" not in message:
        return message
    calls = [
        {name: value for name, value in call.items() if name != "index"}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _take_call(message: dict[str, Any], given: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    calls: list[dict[str, Any]] = message.setdefault("tool_calls", [])
    call = _call_of(calls, given)
    if call is None:
        call = {"index": given.get("index", len(calls)), "id": "", "type": "function"}
        call["function"] = {"name": "", "arguments": ""}
        calls.append(call)
    known = call["function"]["name"]
    _merge(call, {**given, "function": _function(given)})
    if not known and call["function"]["name"]:
        yield CallStarted(id=str(call["id"]), name=str(call["function"]["name"]))


def _call_of(calls: list[dict[str, Any]], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The call that this stretch goes on with; None where it begins another.

    A new id begins a call even under a known index: some servers number every call 0.
    """
    index, call_id = given.get("index"), given.get("id")
    same = [call for call in calls if index is None or call["index"] == index]
    if not same:
        return None
    last = same[-1]
    return None if call_id and last["id"] and call_id != last["id"] else last


def _function(given: Mapping[str, Any]) -> Mapping[str, Any]:
    function = _mapping(given.get("function"))
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        return {**function, "arguments": encode(arguments).decode()}
    return function


def _merge(into: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        had = into.get(name)
        if value is None or (name in _WHOLE and had and not value):
            into.setdefault(name, value)
        elif isinstance(had, str) and isinstance(value, str) and name not in _WHOLE:
            into[name] = had + value
        elif isinstance(had, Mapping) and isinstance(value, Mapping):
            merged = dict(had)
            _merge(merged, value)
            into[name] = merged
        elif isinstance(had, list) and isinstance(value, list):
            into[name] = _joined(had, value)
        else:
            into[name] = value


def _joined(had: list[Any], further: list[Any]) -> list[Any]:
    """Items with an index go on with the item of that index; others are appended."""
    joined = [dict(item) if isinstance(item, Mapping) else item for item in had]
    for item in further:
        index = _mapping(item).get("index")
        begun = [known for known in joined if _mapping(known).get("index") == index]
        if index is not None and begun:
            _merge(begun[-1], item)
        else:
            joined.append(item)
    return joined


def _chat_words(delta: Mapping[str, Any]) -> Iterator[ReplyEvent]:
    thinking = chat_thinking(delta)
    if thinking:
        yield ThinkingDelta(text=thinking)
    for text in (chat_text(delta.get("content")), delta.get("refusal")):
        if text and isinstance(text, str):
            yield TextDelta(text=text)


def chat_thinking(fields: Mapping[str, Any]) -> str:
    """Under whichever name; servers that use both say the same under each."""
    said = (fields.get(name) for name in _CHAT_THINKING)
    return next((text for text in said if text and isinstance(text, str)), "")


def chat_text(content: Any) -> str:
    """The text of a message's content, a string or parts."""
    if isinstance(content, str):
        return content
    parts = [_mapping(part) for part in content] if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")


def responses_call_id(item: Mapping[str, Any]) -> str:
    """The id by which a call's output names it."""
    return str(item.get("call_id") or item.get("id") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


class StreamedReply:
    """What has come of a reply that is streamed, by whichever wire.

    Takes events as a client's library gives them, as its objects or as mappings; what such a
    library adds of its own (accumulated snapshots) is passed over.
    """

    def __init__(self, events: Iterable[Any] = ()) -> None:
        """With `events`, all of them; FormatError where none of them is one."""
        self._assembling: Assembling | None = None
        self.events = 0
        """How many were taken."""
        self.error: Any = None
        """What ended it early: an event that tells an error, or what the client raised."""
        given = 0
        for event in events:
            given += 1
            self.take(event)
        if given and not self.events and self.error is None:
            raise FormatError(
                f"none of these {given} is an event of a stream that is known: give the events "
                "of Anthropic's Messages, or of OpenAI's Chat Completions or Responses"
            )

    def take(self, event: Any) -> None:
        """Add what an event holds."""
        fields = _event_fields(event)
        kind = str(fields.get("type") or "")
        if kind in ("error", "response.failed") or fields.get("error"):
            self.error = fields
            return
        assemble = _assembling_of(kind, fields)
        if assemble is None:
            return
        if self._assembling is None:
            self._assembling = assemble()
        self.events += 1
        for _ in self._assembling.take(fields):
            pass

    @property
    def whole(self) -> bool:
        """Whether the reply came to its own end."""
        return self._assembling is not None and self._assembling.reply() is not None

    @property
    def broken_off(self) -> bool:
        """Whether it began and did not come to its end."""
        return bool(self.events) and not self.whole

    def reply(self) -> Mapping[str, Any]:
        """The reply as it would have come without streaming, as far as it came."""
        if self._assembling is None:
            return {}
        whole = self._assembling.reply()
        return self._assembling.partial() if whole is None else whole


def _assembling_of(kind: str, fields: Mapping[str, Any]) -> Callable[[], Assembling] | None:
    """Whose event it is; None where it is nobody's that we know."""
    if kind in _ANTHROPIC_EVENTS:
        return AnthropicAssembling
    if kind.startswith("response."):
        return ResponsesAssembling
    is_chunk = fields.get("object") == "chat.completion.chunk" or "choices" in fields
    return ChatAssembling if is_chunk else None


def _event_fields(event: Any) -> Mapping[str, Any]:
    """An event as plain data, without what a client's library accumulates in it."""
    if getattr(event, "type", None) == "chunk":  # OpenAI's helper wraps the chunk it was told
        event = getattr(event, "chunk", event)
    if isinstance(event, Mapping):
        return event
    dump = getattr(event, "model_dump", None)
    if callable(dump):
        # A warning of pydantic's would show a stretch of what was said.
        made = dump(mode="json", exclude_unset=True, exclude={"snapshot"}, warnings=False)
        return _mapping(made)
    return _mapping(decode(encode(event)))
