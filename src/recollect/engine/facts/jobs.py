"""The jobs of facts as the queue keeps them: reading a session, writing a digest.

Owns their keys and payloads. Always holds: two that would do the same are one while they wait; one
whose payload names what was said says whose words those are, so that forgetting drops it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from recollect.memory.jobs import GiveUp
from recollect.values.job import DIGEST_JOB, EXTRACT_JOB, Lease, NewJob
from recollect.values.message import MessageId

DIGEST_TOKENS: Final = 4_000
"""What one digest may cost: forty facts, the instructions and the answer."""


def digest_job(
    subject: str, session: str | None, *, run_at: float, about: Iterable[MessageId]
) -> NewJob:
    """A job that writes the digest of a subject anew; `about` is whose words name the subject."""
    named = json.dumps({"subject": subject, "session": session}, ensure_ascii=False)
    return NewJob(
        kind=DIGEST_JOB,
        key=blake2b(named.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest(),
        payload=named.encode("utf-8", "surrogatepass"),
        about=tuple(dict.fromkeys(about)),
        run_at=run_at,
        cost_tokens=DIGEST_TOKENS,
    )


def extract_job(session: str, *, run_at: float, left: bool, cost_tokens: int = 0) -> NewJob:
    """A job that reads what a session has said since it was read last.

    `left`: messages left the view, so it does not wait for the session to go idle.
    """
    return NewJob(
        kind=EXTRACT_JOB,
        key=f"{'left' if left else 'idle'}:{session}",
        payload=json.dumps({"session": session, "left": left}).encode(),
        run_at=run_at,
        cost_tokens=cost_tokens,
    )


def session_of(lease: Lease) -> tuple[str, bool]:
    """The session that a job reads, and whether messages of it left the view."""
    try:
        read = json.loads(lease.payload)
        return str(read["session"]), bool(read["left"])
    except (ValueError, KeyError, TypeError) as error:
        raise GiveUp("its payload names no session") from error


def subject_of(lease: Lease) -> tuple[str, str | None]:
    """The subject of a digest, and the session it is of; None for the whole space."""
    try:
        read = json.loads(lease.payload)
        session = read["session"]
        return str(read["subject"]), None if session is None else str(session)
    except (ValueError, KeyError, TypeError) as error:
        raise GiveUp("its payload names no subject") from error
