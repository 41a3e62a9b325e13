"""How many of what, as people read it: "1 fact", "2 facts".

Owns the singular of everything that forgetting and redacting count. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ONE_OF: Final[Mapping[str, str]] = {
    "compactions": "compaction",
    "daily notes": "daily note",
    "daily notes changed": "daily note changed",
    "digests": "digest",
    "entries of transcripts": "entry of a transcript",
    "facts": "fact",
    "facts by id": "fact by id",
    "jobs": "job",
    "ledger pieces": "ledger piece",
    "lines of daily notes": "line of a daily note",
    "long outputs of commands": "long output of a command",
    "long outputs of commands, deleted": "long output of a command, deleted",
    "messages": "message",
    "messages by identity": "message by identity",
    "names": "name",
    "passages": "passage",
    "reasons of failed jobs": "reason of a failed job",
    "records in ledger, jobs and session states": "record in ledger, jobs and session states",
    "rows of the index of sessions": "row of the index of sessions",
    "secrets": "secret",
    "segments": "segment",
    "segments by id": "segment by id",
    "session states": "session state",
    "session states changed": "session state changed",
    "sessions": "session",
    "spooled batches": "spooled batch",
    "spooled batches changed": "spooled batch changed",
    "summaries and receipts": "summary or receipt",
    "summaries in transcripts, withdrawn": "summary in a transcript, withdrawn",
    "transcripts": "transcript",
    "transcripts changed": "transcript changed",
    "transcripts deleted": "transcript deleted",
    "vectors": "vector",
}


def named(count: int, what: str) -> str:
    """The name alone, as that many are called."""
    return _ONE_OF.get(what, what) if count == 1 else what


def counted(count: int, what: str) -> str:
    """The number and the name."""
    return f"{count:,} {named(count, what)}"
