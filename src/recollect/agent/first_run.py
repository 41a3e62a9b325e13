"""Whether anybody has answered in a session yet: until then BOOTSTRAP.md is shown.

Reads only. A first run that ended before its first answer is a first run still.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recollect.errors import TranscriptError
from recollect.session.index import SessionIndex
from recollect.session.transcript import read_session_file

_UNFINISHED = frozenset({"error", "aborted"})


def is_answered(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a whole answer is among the messages."""
    return any(
        one.get("role") == "assistant" and one.get("stopReason") not in _UNFINISHED
        for one in messages
    )


def answered_before(index: SessionIndex, key: str) -> bool:
    """Whether a session of this key was ever answered; earlier ones of it, behind `/new`, too.

    The index names a key's newest session only: a transcript that is no other key's counts.
    """
    others = {row.session_id for name, row in index.sessions().items() if name != key}
    for path in sorted(index.path.parent.glob("*.jsonl")):
        try:
            session = read_session_file(path)
        except TranscriptError:
            continue
        if session.header is not None and session.header.id in others:
            continue
        if is_answered(entry.message for entry in session.entries if entry.message is not None):
            return True
    return False
