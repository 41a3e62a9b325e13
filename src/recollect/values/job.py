"""Work that outlives the turn that asked for it: a durable queue in the store.

A job is written in the same transaction as what it is about. Always holds: a job's effect is
written together with its completion, and only by the holder of its lease, so every effect
happens exactly once however often workers die.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Literal, NewType, TypeAlias

from recollect.values.message import MessageId

JobId = NewType("JobId", str)
JobState: TypeAlias = Literal["waiting", "leased", "dead"]

EMBED_JOB: Final = "embed"
"""The kind of the jobs that make vectors; their key is the embedder's name."""
EXTRACT_JOB: Final = "extract"
"""The kind of the jobs that read a session for facts; their key is `extract_key`."""


def extract_key(session: str, *, left: bool) -> str:
    """The key of the job that reads a session for facts; the name itself is only in its payload, so
    that any name can be a key, and forgetting a session finds its jobs by both keys."""
    named = session.encode("utf-8", "surrogatepass")
    mark = blake2b(named, digest_size=12, person=b"recollect-job").hexdigest()
    return f"{'left' if left else 'idle'}:{mark}"


DIGEST_JOB: Final = "digest"
"""The kind of the jobs that write a digest of a subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be enqueued."""

    kind: str
    """What is to be done: "embed", "pack", "evict", "expire", "extract", "digest"."""
    key: str
    """Two jobs of one kind and key are one job while it waits; a leased one does not count."""
    payload: bytes = field(default=b"{}", repr=False)
    """JSON; redacted like everything that is stored."""
    about: tuple[MessageId, ...] = ()
    """Whose content the payload quotes; forgetting one of them drops the job."""
    cost_tokens: int = 0
    """What it may spend of the space's budget of the day."""
    run_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A job in the hands of one worker, until it expires."""

    id: JobId
    kind: str
    key: str
    payload: bytes = field(repr=False)
    cost_tokens: int
    attempt: int
    """How often it has been taken, this time included."""
    token: str
    """Names this lease; a later lease of the same job has another one."""
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job as the queue shows it to people; without its payload."""

    id: JobId
    kind: str
    key: str
    state: JobState
    attempts: int
    run_at: float
    cost_tokens: int = 0
    reason: str | None = None
    """Why it failed last, or why it is dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The queue of a space at a glance."""

    waiting: int
    leased: int
    dead: int
    paused: tuple[str, ...] = ()
    """Kinds that are not handed out; "*" is all of them."""
    spent_tokens_today: int = 0
    due_at: float | None = None
    """When the next waiting job may run; None when none waits."""
