"""Output of the chat, and foreign text made safe for a terminal."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

_ACTED_UPON: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but line end and tab, marks of reading direction, lone surrogates."""


def harmless(text: str) -> str:
    """Remove characters that a terminal acts upon; line ends and tabs stay.

    Character by character, so that it does not matter where a stream is cut.
    """
    return _ACTED_UPON.sub("", text)


def shown_model(name: str) -> str:
    """A model's name for people; a local server names a file by its path."""
    return name.rpartition("/")[2].removesuffix(".gguf") if name.endswith(".gguf") else name


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """Send all log records to this handler only."""
    logs = (logging.getLogger(), logging.getLogger("recollect"))
    usual = [(log, log.handlers[:]) for log in logs]
    logs[0].handlers, logs[1].handlers = [handler], []
    try:
        yield
    finally:
        for log, handlers in usual:
            log.handlers = handlers


class Sink(Protocol):
    """Something that text is written to."""

    def write(self, text: str, /) -> Any:
        """Write it."""

    def flush(self) -> Any:
        """Flush it."""
