"""Server-sent events out of bytes, however the network tore them.

Owns the framing only; what an event means is its provider's. Never splits at anything but a
newline, with or without a carriage return before it: a reply may hold U+2028 and a form feed.
Always holds: the same bytes give the same events, in whatever pieces they came, a character
torn in half included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
