"""Heads of requests within limits, for uvicorn's server: its parser takes in any number of bytes.

Whoever can connect can send a head, before any key is looked at: one that does not end is cut off
by its size and by its time.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES: Final = 65_536
"""Of the request's line and its headers; as much again may come in one piece with the last."""
HEAD_SECONDS: Final = 30.0
"""From the connection, or from the head's first byte, until it is there."""


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    _unread_bytes = 0
    """What came since the last head or piece of a body was whole: the parser keeps it."""
    _has_told = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; cut it off where nothing comes to its end."""
        self._has_told = False
        super().data_received(data)
        self._unread_bytes = 0 if self._has_told else self._unread_bytes + len(data)
        if self._unread_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """It is whole."""
        self._cancel_timer()
        self._has_told = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._has_told = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
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
        else:  # the answer to the request before it is still due
            self._await_head()
