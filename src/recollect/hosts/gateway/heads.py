"""Limits the size and time of request heads. uvicorn's parser would accept any number of bytes,
before any key is checked."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES: Final = 65_536
"""Limit of request line and headers. The last chunk may exceed it by the same amount."""
HEAD_SECONDS: Final = 30.0
"""Time limit from the connection, or from the first byte of the head, to its end."""


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    _unread_bytes = 0
    """Bytes that the parser holds, since the last complete head or chunk of a body."""
    _has_told = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser. Close the connection if the head exceeds its limit."""
        self._has_told = False
        super().data_received(data)
        self._unread_bytes = 0 if self._has_told else self._unread_bytes + len(data)
        if self._unread_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._cancel_timer()
        self._has_told = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_told = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_told = True
        super().on_message_complete()

    def _await_head(self) -> None:
        self._cancel_timer()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._end_late)

    def _cancel_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_late(self) -> None:
        if getattr(self.cycle, "response_complete", True):
            self.transport.close()
        else:  # the previous request is not answered yet
            self._await_head()
