"""Which jobs are a session's own, so that they go when it is forgotten; both engines ask here.

Pure. Always holds: a job that names a session, by its key or in its payload, is found, whoever has
it; one that cannot be read names none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from recollect.values.job import DIGEST_JOB, EXTRACT_JOB, extract_key

KINDS: Final = (EXTRACT_JOB, DIGEST_JOB)
"""The kinds of jobs that name a session."""


def jobs_of_sessions(jobs: Iterable[tuple[int, str, bytes]], sessions: Iterable[str]) -> list[int]:
    """The numbers of those jobs, each of one of `KINDS` with key and payload, that name one of
    these sessions."""
    names = frozenset(sessions)
    keys = {extract_key(name, left=left) for name in names for left in (False, True)}
    return [
        number for number, key, payload in jobs if key in keys or _session_named(payload) in names
    ]


def _session_named(payload: bytes) -> str | None:
    try:
        read: Any = json.loads(payload)
    except (ValueError, TypeError):
        return None
    named = read.get("session") if isinstance(read, dict) else None
    return named if isinstance(named, str) else None
