"""How a compaction that was forgotten by itself is told from one that comes later.

A record is kept out by the messages it stands for; where those may still be said elsewhere, or
only its own text was forgotten, by a tombstone of its own. Both engines take it from here.
Always holds: the mark is a hash over the whole record, so that another compaction of the same
number is another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from hashlib import blake2b

from recollect.values.compaction import CompactionRecord


def compaction_mark(record: CompactionRecord) -> str:
    """What a tombstone for this record is kept by."""
    hashed = blake2b(digest_size=16, person=b"recollect-cut")
    for part in (
        record.session.encode("utf-8", "surrogatepass"),
        f"{record.number} {float(record.at).hex()}".encode(),
        "\0".join(record.about).encode("utf-8", "surrogatepass"),
        record.body,
    ):
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.hexdigest()


def marks_of(gone: Iterable[CompactionRecord | None], *, but_about: AbstractSet[str]) -> list[str]:
    """The marks of records that went, but of those that the tombstones of messages keep out."""
    return [
        compaction_mark(record)
        for record in gone
        if record is not None and but_about.isdisjoint(record.about)
    ]


def session_mark(session: str) -> str:
    """What the place up to which a session was read is kept by; its name may be forgotten."""
    named = session.encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=16, person=b"recollect-read").hexdigest()
