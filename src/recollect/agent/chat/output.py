"""Where text goes, and text of somebody else's made safe to go there."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

_ACTED_UPON: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls but line end and tab, marks that turn the reading direction, halves of signs."""


def harmless(text: str) -> str:
    """The text without what a terminal would act upon; line ends and tabs stay.

    Sign by sign, so that it does not matter where a stream is cut: of an escape sequence the rest
    stays to be read, and does nothing.
    """
    return _ACTED_UPON.sub("", text)


def shown_model(name: str) -> str:
    """A model's name for people: of a file that a local server names by its path, the file."""
    return name.rpartition("/")[2].removesuffix(".gguf") if name.endswith(".gguf") else name


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """While the block runs, what we or our libraries log goes there and nowhere else."""
    logs = (logging.getLogger(), logging.getLogger("recollect"))
    usual = [(log, log.handlers[:]) for log in logs]
    logs[0].handlers, logs[1].handlers = [handler], []
    try:
        yield
    finally:
        for log, handlers in usual:
            log.handlers = handlers


class Sink(Protocol):
    """Where text goes."""

    def write(self, text: str, /) -> Any:
        """Take it."""
        ...

    def flush(self) -> Any:
        """Hand it on."""
        ...
