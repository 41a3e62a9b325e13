"""The jobs of facts as the queue keeps them, and whose facts a job may touch.

Owns keys, payloads and reach. Kept apart from what runs them, so that an engine that reads no facts
does not load the rules. Always holds: two jobs that would do the same are one while they wait; one
whose payload names what was said says whose words those are, so that forgetting drops it; what one
session says neither closes, nor lends its words to, a fact that another one recalls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from recollect.config.settings import Scope
from recollect.upkeep.jobs import GiveUp
from recollect.values.batch import DIGEST_JOB, Lease, NewJob
from recollect.values.fact import Fact
from recollect.values.message import MessageId
from recollect.values.segment import Segment

_OF_THE_SPACE: Final = frozenset({"import", "hook", "note", "file"})
NO_SESSION: Final = ""
"""Asked of a store as a session, which none is named: only facts of no session are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactScope:
    """Which facts are in reach, and whose a new one is."""

    session: str | None
    """Whose new facts are; None: the whole space's."""
    everything: bool = False
    """All sessions are one memory."""

    @property
    def asked(self) -> str | None:
        """What a store is asked for; it finds those of no session, too."""
        if self.everything:
            return None
        return NO_SESSION if self.session is None else self.session

    def holds(self, fact: Fact) -> bool:
        """Whether a fact may be replaced, joined or summed up from here."""
        return self.everything or fact.session == self.session


def reach_of(session: str, segments: Iterable[Segment], scope: Scope) -> FactScope:
    """The reach of what a session said in these messages."""
    if scope == "space":
        return FactScope(session=session, everything=True)
    if all(segment.source in _OF_THE_SPACE for segment in segments):
        return FactScope(session=None)
    return FactScope(session=session)


DIGEST_TOKENS: Final = 4_000
"""What one digest may cost: forty facts, the instructions and the answer."""


def digest_job(
    subject: str,
    reach: FactScope,
    *,
    run_at: float,
    about: Iterable[MessageId],
    cost_tokens: int = 0,
) -> NewJob:
    """A job that writes the digest of a subject anew; `about` is whose words name the subject."""
    session = None if reach.everything else reach.session
    whose = {"session": session, "everything": reach.everything}
    named = json.dumps({"subject": subject, **whose})
    return NewJob(
        kind=DIGEST_JOB,
        key=blake2b(named.encode(), digest_size=8).hexdigest(),
        payload=named.encode(),
        about=tuple(dict.fromkeys(about)),
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


def subject_of(lease: Lease) -> tuple[str, FactScope]:
    """The subject of a digest, and whose facts it is made of."""
    try:
        read = json.loads(lease.payload)
        session = read["session"]
        reach = FactScope(
            session=None if session is None else str(session),
            everything=bool(read.get("everything")),
        )
        return str(read["subject"]), reach
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GiveUp("its payload names no subject") from error
