"""What pi shows the model of a session file, to compare our files with."""

from collections.abc import Sequence

from recollect.core.formats.pi_session import (
    PiEntry,
    PiMessage,
    kept_from,
    path_to,
    shown_message,
    summary_message,
)


def build_context(entries: Sequence[PiEntry], leaf: str | None = None) -> list[PiMessage]:
    """The last summary on the path, the messages that it does not cover, and all after it."""
    path = path_to(entries, leaf)
    cut = max((at for at, entry in enumerate(path) if entry.kind == "compaction"), default=None)
    if cut is None:
        return _shown(path)
    tail = path[cut].retained_tail
    kept = _shown(path[kept_from(path, cut) : cut]) if tail is None else [*tail]
    return [summary_message(path[cut]), *kept, *_shown(path[cut + 1 :])]


def _shown(entries: Sequence[PiEntry]) -> list[PiMessage]:
    return [message for entry in entries if (message := shown_message(entry)) is not None]
