"""A `ChatModel` over HTTP: the code that all wire formats share.

A stream of a reply ends with one `ReplyDone`, or raises an error. If the connection ends before the
reply is complete, the stream raises `ModelUnavailable`. A caller that leaves the stream early
closes the connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import quote

from recollect.adapters.providers import calls
from recollect.adapters.providers.overflow import recognize_silent_overflow
from recollect.core.formats.blocks import mapping, mappings
from recollect.core.formats.codec import Assembling
from recollect.core.formats.json_text import decode
from recollect.core.formats.replies import read_usage
from recollect.core.values.model import (
    Answer,
    CallStarted,
    Prompt,
    ReplyDone,
    ReplyEvent,
    StopReason,
    TextDelta,
    ThinkingDelta,
)
from recollect.errors import FormatError, ModelError, ModelOverflow, ModelRefused, ModelUnavailable
from recollect.system.http import Retries, is_sendable_key
from recollect.system.telemetry import measure_action

_END: Final = "[DONE]"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_WINDOW_FIELDS: Final = (
    "loaded_context_length",  # LM Studio: the window that the model was loaded with
    "max_model_len",  # vLLM
    "context_length",  # OpenRouter, Together
    "context_window",  # Groq
    "max_context_length",  # Mistral
    "max_input_tokens",  # Anthropic
    # llama.cpp, under `meta`. Never read `n_ctx_train`: the server may use a smaller window.
    "n_ctx",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """A complete reply, in the same form for every wire format."""

    text: str = field(default="", repr=False)
    thinking: str = field(default="", repr=False)
    calls: tuple[tuple[str, str], ...] = ()
    """Id and name of each tool call."""
    stop: StopReason
    stop_word: str | None = None
    """The provider's own name of the stop reason."""

    def events(self) -> Iterator[ReplyEvent]:
        if self.thinking:
            yield ThinkingDelta(text=self.thinking)
        if self.text:
            yield TextDelta(text=self.text)
        for call_id, name in self.calls:
            yield CallStarted(id=call_id, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyWire:
    """How one wire format writes replies and errors."""

    provider: str
    """The provider's name in OpenTelemetry's conventions."""
    path: str
    own_url: str
    key_hint: str
    """Advice to show if the provider's own server is called without a key."""
    assemble: Callable[[], Assembling]
    parse: Callable[[Mapping[str, Any]], ParsedReply | None]
    """Parses a complete reply; returns None for JSON in another format."""
    error_events: frozenset[str]
    """Types of events that report an error. An object under `error` always reports an error."""


class HttpChatModel(ABC):
    """A `ChatModel` over HTTP. Close the model in the event loop that used it."""

    wire: ClassVar[ReplyWire]

    def __init__(
        self,
        *,
        model: str,
        key: str | None = None,
        base_url: str | None = None,
        deadline_seconds: float = 120.0,
        window_tokens: int | None = None,
        headers: Mapping[str, str] | None = None,
        retries: Retries | None = None,
    ) -> None:
        self._model = model
        self._window = window_tokens
        self._address = calls.read_address(base_url, own_url=self.wire.own_url)
        key = (key or "").strip()
        if not is_sendable_key(key):
            raise ModelRefused(
                "the model's API key contains characters that no API key has: set it again"
            )
        self._keyless = not key
        self._calls = calls.Calls(
            address=self._address,
            headers={**self._headers(key), **_check_headers(headers or {})},
            deadline_seconds=deadline_seconds,
            retries=retries,
        )

    @property
    def name(self) -> str:
        return self._model

    @property
    def window_tokens(self) -> int | None:
        """Return the window from the settings, or the result of `stated_window`."""
        return self._window

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r} at {self._address.host})"

    async def ask(self, prompt: Prompt) -> Answer:
        """Send one prompt and return the answer: JSON text, if the prompt has a schema."""
        _, answer = await self._ask(calls.Body(fields=self.prompt_fields(prompt)))
        return answer

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[ReplyEvent, None]:
        """Send a request in this wire format, and yield the reply as it arrives. Closing the
        iterator aborts the request."""
        async with aclosing(self._stream(calls.Body(fields={**request, "stream": True}))) as events:
            async for event in events:
                yield event

    async def stated_window(self) -> int | None:
        """Ask the server for the model's window; None if the server does not report one."""
        if self._address.is_own:
            return None
        return self._remember_window(await self._ask_listed_window())

    async def close(self) -> None:
        await self._calls.close()

    @staticmethod
    @abstractmethod
    def _headers(key: str) -> dict[str, str]:
        """Build the headers of every call. An empty `key` means that there is none."""

    @abstractmethod
    def prompt_fields(self, prompt: Prompt) -> dict[str, Any]:
        """Build the request body for one prompt."""

    async def _ask(self, body: calls.Body) -> tuple[Mapping[str, Any], Answer]:
        self._check_key()
        with measure_action("model", self._model) as measurement:
            measurement.note(gen_ai__provider__name=self.wire.provider)
            reply = self._decode_object(await self._calls.fetch(self.wire.path, body))
            parsed_reply, reply_done = self._parse_reply(reply)
            if reply_done.usage is not None:
                measurement.note(
                    gen_ai__usage__input_tokens=reply_done.usage.input_tokens,
                    gen_ai__usage__output_tokens=reply_done.usage.output_tokens,
                )
        if reply_done.overflow is not None:
            raise ModelOverflow(
                f"{self._address.host} cut the prompt to the model's window without an error "
                f"({reply_done.overflow.pattern_name}): shorten the request",
                reply_done.overflow,
            )
        return reply, Answer(text=parsed_reply.text, stop=parsed_reply.stop, usage=reply_done.usage)

    async def _stream(self, body: calls.Body) -> AsyncGenerator[ReplyEvent, None]:
        self._check_key()
        reply_stream = await self._calls.begin(self.wire.path, body)
        try:
            if "application/json" in reply_stream.content_type:
                # The server cannot stream, or it sent status 200 with an error.
                reply = self._decode_object(await self._calls.read_rest(reply_stream))
                parsed_reply, reply_done = self._parse_reply(reply)
                for event in parsed_reply.events():
                    yield event
            else:
                assembling = self.wire.assemble()
                async with aclosing(self._read_events(reply_stream, assembling)) as events:
                    async for fields in events:
                        for event in assembling.take(fields):
                            yield event
                full_reply = assembling.reply()
                if full_reply is None:
                    early = f"{self._address.host} ended its reply early: try again"
                    raise ModelUnavailable(early, prompt_read=True)
                _, reply_done = self._parse_reply(full_reply)
            await self._calls.end(reply_stream)
            yield reply_done
        finally:
            await reply_stream.close()

    async def _read_events(
        self, reply_stream: calls.Reply, assembling: Assembling
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        reader = EventReader()
        while not assembling.complete:
            piece = await self._calls.read_next(reply_stream)
            for event in reader.finish() if piece is None else reader.feed(piece):
                if event.data.strip() == _END:
                    return
                fields = self._decode_object(
                    event.data.encode("utf-8", "surrogatepass"), event.name
                )
                if str(fields.get("type")) in self.wire.error_events:
                    raise calls.classify(calls.read_error_object(fields), server=self._address.host)
                yield fields
            if piece is None:
                return

    def _decode_object(self, content: bytes, event_name: str = "") -> Mapping[str, Any]:
        """Decode a JSON object. Raise if the JSON is invalid or reports an error. The decoder's own
        error would quote the content, so that error is not shown."""
        try:
            fields = decode(content)
        except FormatError:
            fields = None
        if not isinstance(fields, Mapping):
            raise self._wrong_reply()
        if event_name == "error" or fields.get("error") or fields.get("object") == "error":
            raise calls.classify(calls.read_error_object(fields), server=self._address.host)
        return fields

    def _parse_reply(self, reply: Mapping[str, Any]) -> tuple[ParsedReply, ReplyDone]:
        parsed_reply = self.wire.parse(reply)
        if parsed_reply is None:
            raise self._wrong_reply()
        usage = read_usage(reply)
        overflow = recognize_silent_overflow(
            stop_reason=parsed_reply.stop_word,
            input_tokens=usage.input_tokens if usage is not None else 0,
            output_tokens=usage.output_tokens if usage is not None else 0,
            window_tokens=self._window,
        )
        return parsed_reply, ReplyDone(
            reply=reply, stop=parsed_reply.stop, usage=usage, overflow=overflow
        )

    def _wrong_reply(self) -> ModelError:
        return ModelUnavailable(
            f"{self._address.host} answered 200, but not with a model's reply: check that the "
            "server at the base URL has this API"
        )

    def _check_key(self) -> None:
        if self._keyless and self._address.is_own:
            raise ModelRefused(self.wire.key_hint)

    async def _ask_model_window(self) -> int | None:
        url = self._address.url(f"/models/{quote(self._model, safe='')}")
        return _window_in(await self._calls.fetch_object(url))

    async def _ask_listed_window(self) -> int | None:
        rows = mappings((await self._calls.fetch_object(self._address.url("/models"))).get("data"))
        named_rows = [row for row in rows if self._model in _names_of(row)]
        # a server with a single model accepts any name
        chosen_rows = named_rows or (rows if len(rows) == 1 else [])
        # Only newer llama.cpp servers report the window in their list, as the total of all slots.
        props = await self._calls.fetch_object(self._address.root_url("/props"))
        places = (*chosen_rows[:1], mapping(props.get("default_generation_settings")))
        return min((tokens for place in places if (tokens := _window_in(place))), default=None)

    def _remember_window(self, window_tokens: int | None) -> int | None:
        self._window = self._window or window_tokens
        return window_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One server-sent event: its name (empty if the server sent none) and its data."""

    name: str = ""
    data: str = field(repr=False)


class EventReader:
    """Reads server-sent events from the chunks of a stream.

    Lines end only at newlines, with or without a carriage return, because a reply may contain
    U+2028 and form feeds. The same bytes give the same events, however they are split into chunks.
    """

    def __init__(self) -> None:
        self._partial_line = b""
        self._name = ""
        self._data: list[str] = []
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
        for line in lines:
            event = self._read_line(line)
            if event is not None:
                yield event

    def finish(self) -> Iterator[ServerEvent]:
        """Return the stream's last event if its closing blank line is missing."""
        for line in (self._partial_line, b""):
            event = self._read_line(line)
            if event is not None:
                yield event
        self._partial_line = b""

    def _read_line(self, raw: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun = True
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        line = raw.removesuffix(b"\r").decode("utf-8", "replace")
        if not line:
            return self._complete_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "error":
            # Older llama.cpp servers send an error in a field named `error`.
            self._name = "error"
            self._data.append(value)
        return None

    def _complete_event(self) -> ServerEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return ServerEvent(name=name, data="\n".join(data)) if data else None


def _window_in(row: Mapping[str, Any]) -> int | None:
    for place in (row, mapping(row.get("top_provider")), mapping(row.get("meta"))):
        for name in _WINDOW_FIELDS:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def _names_of(row: Mapping[str, Any]) -> list[Any]:
    aliases = row.get("aliases")
    return [row.get("id"), *(aliases if isinstance(aliases, list) else ())]


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not (name.isascii() and value.isascii() and value.isprintable()):
            raise ModelRefused(f"the header {name!r} contains characters that HTTP does not allow")
    return dict(headers)
