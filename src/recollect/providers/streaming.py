"""From a provider's stream to `ReplyEvent`s, the same way for every wire.

Owns reading a stream to its end and what the end means: a whole reply, or an error. What a
wire's events mean is in `formats.stream_events`. Always holds: `ReplyDone` comes last and once,
or an error is raised; a stream that ended before its reply did is `ModelUnavailable`; leaving the
stream early cuts the connection.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from recollect.errors import FormatError, ModelError, ModelOverflow, ModelUnavailable
from recollect.formats.codec import Assembling
from recollect.formats.json_text import decode
from recollect.formats.replies import read_usage
from recollect.providers.calls import Address, Body, Calls, Reply, classify, told_in
from recollect.providers.overflow import recognise_silent_overflow
from recollect.values.model import (
    Answer,
    CallStarted,
    ReplyDone,
    ReplyEvent,
    StopReason,
    TextDelta,
    ThinkingDelta,
)

# Server-sent events out of bytes, however the network tore them.
#
# Owns the framing only; what an event means is its provider's. Never splits at anything but a
# newline, with or without a carriage return before it: a reply may hold U+2028 and a form feed.
# Always holds: the same bytes give the same events, in whatever pieces they came, a character
# torn in half included.


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event: its name, empty where the server gave none, and its data."""

    name: str = ""
    data: str = field(repr=False)


class EventReader:
    """Takes pieces of a stream, gives the events that are complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event

    def finish(self) -> Iterator[ServerEvent]:
        """What stands at the end without the blank line that some servers forget."""
        for line in (self._rest, b""):
            event = self._line(line)
            if event is not None:
                yield event
        self._rest = b""

    def _line(self, raw: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun = True
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        line = raw.removesuffix(b"\r").decode("utf-8", "replace")
        if not line:
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "error":
            # Older llama.cpp servers put an error into a field of its own.
            self._name = "error"
            self._data.append(value)
        return None

    def _complete(self) -> ServerEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return ServerEvent(name=name, data="\n".join(data)) if data else None


# What a JSON schema is called and how firmly a provider may hold an answer to it.


ANSWER_NAME: Final = "answer"
"""The name that providers ask for, of the schema or of the tool that stands for it."""


def named_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as OpenAI's wires name it: firm where it is written for that."""
    return {"name": ANSWER_NAME, "schema": schema, "strict": is_closed(schema)}


def is_closed(schema: Any) -> bool:
    """Whether every object allows its own fields only and demands all: OpenAI's `strict`."""
    if isinstance(schema, list):
        return all(is_closed(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, Mapping):
        required = schema.get("required")
        fields = set(properties) if isinstance(properties, Mapping) else set()
        demanded = set(required) if isinstance(required, list) else set()
        if schema.get("additionalProperties") is not False or demanded != fields:
            return False
    return all(is_closed(value) for value in schema.values())


# A model's window as its server states it, where it does.
#
# Owns the fields under which servers tell it. Never fails and never guesses: no answer, an odd
# answer and a window of training (`n_ctx_train`, which is not what was given to the server) are
# all None. Asked once by whoever wants to know; nothing here runs by itself.


_FIELDS: Final = (
    "loaded_context_length",  # LM Studio: what the model was loaded with
    "max_model_len",  # vLLM
    "context_length",  # OpenRouter, Together
    "context_window",  # Groq
    "max_context_length",  # Mistral
    "max_input_tokens",  # Anthropic
    "n_ctx",  # llama.cpp, under `meta`
)


async def ask_window(calls: Calls, address: Address, model: str) -> int | None:
    """The window that the server states for this model: in its list, or as llama.cpp does."""
    listed = await _listed(calls, address, model)
    # Of llama.cpp's list only newer servers state it, and there for all slots together.
    beside = await _props(calls, address) if not address.own else None
    stated = [tokens for tokens in (listed, beside) if tokens is not None]
    return min(stated, default=None)


async def ask_model_window(calls: Calls, address: Address, model: str) -> int | None:
    """The window that the server states under the model's own address, as Anthropic does."""
    stated = _window(await _look(calls, address.url(f"/models/{quote(model, safe='')}")))
    return stated if stated or address.own else await ask_window(calls, address, model)


async def _listed(calls: Calls, address: Address, model: str) -> int | None:
    answer = await _look(calls, address.url("/models"))
    rows = answer.get("data")
    models = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    named = [row for row in models if model in _names(row)]
    # A server of one model answers to any name.
    chosen = named or (models if len(models) == 1 else [])
    return _window(chosen[0]) if chosen else None


async def _props(calls: Calls, address: Address) -> int | None:
    answer = await _look(calls, address.root_url("/props"))
    return _window(_mapping(answer.get("default_generation_settings")))


def _names(row: Mapping[str, Any]) -> list[Any]:
    aliases = row.get("aliases")
    return [row.get("id"), *(aliases if isinstance(aliases, list) else ())]


def _window(row: Mapping[str, Any]) -> int | None:
    for place in (row, _mapping(row.get("top_provider")), _mapping(row.get("meta"))):
        for name in _FIELDS:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


async def _look(calls: Calls, url: str) -> Mapping[str, Any]:
    content = await calls.look(url)
    try:
        return _mapping(decode(content)) if content is not None else {}
    except FormatError:
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_END = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """What a whole reply says, the same for every wire."""

    text: str = field(default="", repr=False)
    thinking: str = field(default="", repr=False)
    calls: tuple[tuple[str, str], ...] = ()
    """The id and the name of each."""
    stop: StopReason
    said_stop: str | None = None
    """In the provider's own word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWire:
    """One provider's way of replying."""

    path: str
    assemble: Callable[[], Assembling]
    hear: Callable[[Mapping[str, Any]], ParsedReply | None]
    """What a whole reply says; None where it is no reply of this wire."""
    error_events: frozenset[str]
    """Types of events that tell an error; an object under `error` always does."""


async def ask_whole(
    calls: Calls, wire: ReplyWire, body: Body, window: int | None
) -> tuple[Mapping[str, Any], Answer]:
    """A reply without streaming, and the answer it holds.

    A window exceeded in silence is an error here: the answer rests on a part of the prompt.
    """
    reply = _object(calls, await calls.whole(wire.path, body))
    done = _done(calls, wire, reply, window)
    if done.overflow is not None:
        raise ModelOverflow(
            f"{calls.who}: the prompt was cut to the model's window without an error "
            f"({done.overflow.pattern_name}); ask with less",
            done.overflow,
        )
    heard = _heard(calls, wire, reply)
    return reply, Answer(text=heard.text, stop=heard.stop, usage=done.usage)


async def stream_whole(
    calls: Calls, wire: ReplyWire, body: Body, window: int | None
) -> AsyncGenerator[ReplyEvent, None]:
    """A reply as it comes; closing the generator cuts the connection."""
    begun = await calls.begin(wire.path, body)
    try:
        if "application/json" in begun.content_type:
            # The server does not stream, or it answered 200 with an error.
            reply = _object(calls, await _rest(calls, begun))
            for told in _at_once(_heard(calls, wire, reply)):
                yield told
        else:
            assembling = wire.assemble()
            reader = EventReader()
            while not assembling.complete:
                piece = await calls.next(begun)
                events = reader.finish() if piece is None else reader.feed(piece)
                ended = piece is None
                for event in events:
                    if event.data.strip() == _END:
                        ended = True
                        break
                    for told in assembling.take(_checked(calls, wire, event)):
                        yield told
                if ended:
                    break
            reply = _assembled(calls, assembling)
        done = _done(calls, wire, reply, window)
        await calls.end(begun)
        yield done
    finally:
        await begun.close()


def _checked(calls: Calls, wire: ReplyWire, event: ServerEvent) -> Mapping[str, Any]:
    fields = _object(calls, event.data.encode("utf-8", "surrogatepass"), named=event.name)
    if fields.get("type") in wire.error_events:
        raise classify(told_in(fields), who=calls.who)
    return fields


def _object(calls: Calls, content: bytes, *, named: str = "") -> Mapping[str, Any]:
    """A JSON object that tells no error; the decoder's error would quote it."""
    try:
        fields = decode(content)
    except FormatError:
        fields = None
    if not isinstance(fields, Mapping):
        raise _wrong(calls)
    if named == "error" or fields.get("error") or fields.get("object") == "error":
        raise classify(told_in(fields), who=calls.who)
    return fields


def _assembled(calls: Calls, assembling: Assembling) -> Mapping[str, Any]:
    reply = assembling.reply()
    if reply is None:
        raise ModelUnavailable(f"{calls.who} broke off its reply before the end: try again")
    return reply


def _heard(calls: Calls, wire: ReplyWire, reply: Mapping[str, Any]) -> ParsedReply:
    heard = wire.hear(reply)
    if heard is None:
        raise _wrong(calls)
    return heard


def _done(calls: Calls, wire: ReplyWire, reply: Mapping[str, Any], window: int | None) -> ReplyDone:
    heard = _heard(calls, wire, reply)
    usage = read_usage(reply)
    overflow = recognise_silent_overflow(
        stop_reason=heard.said_stop,
        input_tokens=usage.input_tokens if usage is not None else 0,
        output_tokens=usage.output_tokens if usage is not None else 0,
        window_tokens=window,
    )
    return ReplyDone(reply=reply, stop=heard.stop, usage=usage, overflow=overflow)


def _at_once(heard: ParsedReply) -> Iterator[ReplyEvent]:
    if heard.thinking:
        yield ThinkingDelta(text=heard.thinking)
    if heard.text:
        yield TextDelta(text=heard.text)
    for call_id, name in heard.calls:
        yield CallStarted(id=call_id, name=name)


async def _rest(calls: Calls, reply: Reply) -> bytes:
    pieces: list[bytes] = []
    while (piece := await calls.next(reply)) is not None:
        pieces.append(piece)
    return b"".join(pieces)


def _wrong(calls: Calls) -> ModelError:
    return ModelUnavailable(
        f"{calls.who} answered 200 with what is no reply: check that the base URL is a server "
        "of this wire"
    )
