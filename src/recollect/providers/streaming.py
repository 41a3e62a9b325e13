"""From a provider's stream to `ReplyEvent`s, the same way for every wire.

Owns reading a stream to its end and what the end means: a whole reply, or an error. What a
wire's events mean is in `formats.stream_events`. Always holds: `ReplyDone` comes last and once,
or an error is raised; a stream that ended before its reply did is `ModelUnavailable`; leaving the
stream early cuts the connection.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.errors import FormatError, ModelError, ModelOverflow, ModelUnavailable
from recollect.formats.json_spans import decode
from recollect.formats.replies import read_usage
from recollect.formats.stream_events import Assembling
from recollect.providers.calls import Body, Calls, Reply
from recollect.providers.failures import classify, told_in
from recollect.providers.overflow import recognise_silent_overflow
from recollect.providers.sse import EventReader, ServerEvent
from recollect.values.model import (
    Answer,
    CallStarted,
    ReplyDone,
    ReplyEvent,
    StopReason,
    TextDelta,
    ThinkingDelta,
)

_END = "[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a whole reply says, the same for every wire."""

    text: str = field(default="", repr=False)
    thinking: str = field(default="", repr=False)
    calls: tuple[tuple[str, str], ...] = ()
    """The id and the name of each."""
    stop: StopReason
    said_stop: str | None = None
    """In the provider's own word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One provider's way of replying."""

    path: str
    assemble: Callable[[], Assembling]
    hear: Callable[[Mapping[str, Any]], Heard | None]
    """What a whole reply says; None where it is no reply of this wire."""
    error_events: frozenset[str]
    """Types of events that tell an error; an object under `error` always does."""


async def ask_whole(
    calls: Calls, wire: Wire, body: Body, window: int | None
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
    calls: Calls, wire: Wire, body: Body, window: int | None
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


def _checked(calls: Calls, wire: Wire, event: ServerEvent) -> Mapping[str, Any]:
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


def _heard(calls: Calls, wire: Wire, reply: Mapping[str, Any]) -> Heard:
    heard = wire.hear(reply)
    if heard is None:
        raise _wrong(calls)
    return heard


def _done(calls: Calls, wire: Wire, reply: Mapping[str, Any], window: int | None) -> ReplyDone:
    heard = _heard(calls, wire, reply)
    usage = read_usage(reply)
    overflow = recognise_silent_overflow(
        stop_reason=heard.said_stop,
        input_tokens=usage.input_tokens if usage is not None else 0,
        output_tokens=usage.output_tokens if usage is not None else 0,
        window_tokens=window,
    )
    return ReplyDone(reply=reply, stop=heard.stop, usage=usage, overflow=overflow)


def _at_once(heard: Heard) -> Iterator[ReplyEvent]:
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
