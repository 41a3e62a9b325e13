"""Certificates of forgetting and reports of redaction, as text and as JSON with a checksum. None of
them contains message content. Secrets that were found but not masked are reported."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from recollect.core.values.message import MessageId
from recollect.core.values.upkeep import BodyKind, Certificate, ForgetScope
from recollect.system.plain_text import plain_line

_PLURAL: Final = re.compile(r"\b(\w+?)(ies|(?<=ch)es|s)\b")

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with what is being processed, the number done, and the total if known."""
SEGMENTS: Final = "messages"
FACTS: Final = "facts"
SPOOL: Final = "spooled batches"
PLACES: Final[Mapping[BodyKind, str]] = {
    "pieces": "ledger pieces",
    "jobs": "jobs",
    "job reasons": "reasons of failed jobs",
    "compactions": "summaries and receipts",
    "states": "session states",
}
CANNOT: Final = (
    "backups, archived logs and replicas of the database that were made before",
    "spools of other machines: messages in them were masked by the rules of that time",
    "what model providers logged or cached",
    "the client's own history and files",
)
SESSION_NAMES: Final = "names of sessions"
ORIGINS: Final = "places that messages were imported from"
JOB_KEYS: Final = "keys of jobs"
RECORD_NAMES: Final = "ids, names and keys in records"
_DIGEST_BYTES: Final = 32
_IN_SHORT: Final = (
    "Out of reach as always: backups, replicas, other machines' spools, providers' logs, the "
    "client's own history. --json lists it, and what this covers."
)
_FORMAT: Final = "recollect-certificate-1"
FILES_CANNOT: Final = ("disk blocks of replaced transcripts and notes, backups and other copies",)
_REDACTION_FORMAT: Final = "recollect-redaction-1"
_MOST_SESSIONS: Final = 10
COVERS: Final = (
    "the archive: messages, passages and the word index; their vectors are computed again",
    "facts",
    "the ledger: replay marks masked text",
    "jobs, session states, summaries and receipts",
    "the spool of this machine",
    "transcripts of Recollect's own agent in this space, and the history files of its chats",
)
IN_SHORT: Final = (
    "Backups, replicas, other machines' spools, providers' logs and the client's own history are "
    "out of reach; --json lists what this covers."
)
STANDING: Final = frozenset((*CANNOT, *FILES_CANNOT))
COVERS_NOTES: Final = "daily notes of the workspace that was named"


def count_text(count: int, what: str) -> str:
    return f"{count:,} {_in_number(count, what)}"


def _in_number(count: int, what: str) -> str:
    if count != 1:
        return what
    return _PLURAL.sub(lambda word: word[1] + "y" * (word[2] == "ies"), what, count=1)


@dataclass(slots=True, kw_only=True)
class RedactionResult:
    """The number of secrets per place (such as messages or facts), before or after masking."""

    applied: bool
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    changed: Counter[str] = field(default_factory=Counter)
    sessions: Counter[str] = field(default_factory=Counter)
    left: int = 0
    """Secrets that were not masked, because they are in names, in records that have changed, or in
    files that are open or belong to others."""
    unread: int = 0
    cannot: list[str] = field(default_factory=list)

    def add(self, other: RedactionResult) -> None:
        """Add the counts of other places."""
        self.kinds |= other.kinds
        self.changed += other.changed
        self.sessions += other.sessions
        self.left += other.left
        self.unread += other.unread
        self.cannot = list(dict.fromkeys([*other.cannot, *self.cannot]))

    @property
    def secrets(self) -> int:
        return sum(count for kinds in self.kinds.values() for count in kinds.values())

    @property
    def in_clear(self) -> int:
        """Number of secrets that are not masked, in all content that could be read."""
        return self.left + (0 if self.applied else self.secrets)

    def count(
        self,
        place: str,
        kinds: Mapping[str, int],
        session: str | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Count the secrets of one item; with `again`, of an item that was counted before."""
        self.changed[place] += not again
        self.kinds.setdefault(place, Counter()).update(kinds)
        if session is not None:
            self.sessions[session] += sum(kinds.values())


def seal(certificate: Certificate) -> Certificate:
    return replace(certificate, checksum=_checksum(certificate_json(certificate)))


def extend_certificate(
    certificate: Certificate,
    *,
    counts: Mapping[str, int],
    covers: Iterable[str],
    cannot: Iterable[str],
) -> Certificate:
    """Add work that was done outside of the store to a certificate, with a new checksum."""
    return seal(
        replace(
            certificate,
            counts={**certificate.counts, **counts},
            covers=tuple(dict.fromkeys((*certificate.covers, *covers))),
            cannot=tuple(dict.fromkeys((*cannot, *certificate.cannot))),
        )
    )


def digest_of(identities: Iterable[MessageId]) -> str:
    """Return a hash of message ids, whatever their order."""
    listed = "\n".join(sorted(set(identities)))
    return blake2b(listed.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def certificate_json(certificate: Certificate) -> dict[str, Any]:
    record = asdict(certificate)
    record["counts"] = dict(certificate.counts)
    return {"format": _FORMAT, **record}


def certificate_text(certificate: Certificate, *, standing: Collection[str] = ()) -> str:
    """Format a certificate as text. Lines in `standing` are omitted."""
    plain = plain_line
    counts = certificate.counts.items()
    removed = [
        f"  {count:>8,}  {plain(_in_number(count, what))}" for what, count in counts if count
    ]
    cannot = [line for line in certificate.cannot if line not in standing]
    lines = [
        "Certificate of forgetting",
        "",
        f"space      {plain(certificate.space)}",
        f"when       {_time_text(certificate.at)}",
        f"asked      {_scope_text(certificate.asked)}",
        f"store      {plain(certificate.engine)}, Recollect {certificate.version}",
        "",
        "Removed",
        *(removed or ["         nothing was stored of it"]),
    ]
    if not standing:
        lines += ["", "This covers", *(f"  - {plain(line)}" for line in certificate.covers)]
    if cannot:
        lines += ["", "This cannot cover", *(f"  - {plain(line)}" for line in cannot)]
    if standing:
        lines += ["", _IN_SHORT]
    digest = certificate.identities_digest
    seals = [f"identities {digest}"] if digest else []
    return "\n".join((*lines, "", *seals, f"checksum   {certificate.checksum}"))


def _scope_text(asked: ForgetScope) -> str:
    parts = []
    if asked.segments:
        parts.append(count_text(asked.segments, "segments by id"))
    if asked.identities:
        parts.append(count_text(asked.identities, "messages by identity"))
    if asked.sessions:
        what = _in_number(len(asked.sessions), "sessions")
        parts.append(f"{what} {', '.join(map(plain_line, asked.sessions))}")
    if asked.said_before is not None:
        parts.append(f"all messages before {_time_text(asked.said_before)}")
    if asked.said_after is not None:
        parts.append(f"all messages from {_time_text(asked.said_after)} on")
    if asked.facts:
        parts.append(count_text(asked.facts, "facts by id"))
    if asked.whole_space:
        parts.append("the whole space")
    if asked.matching:
        parts.append("all messages that contain a text, which is not repeated here")
    if asked.pattern:
        parts.append("all that a pattern matches, which is not repeated here")
    return "; ".join(parts) or "nothing"


def _time_text(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _checksum(sealed: Mapping[str, Any]) -> str:
    without = {name: value for name, value in sealed.items() if name != "checksum"}
    canonical = json.dumps(without, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=_DIGEST_BYTES).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionReport:
    """The number of secrets per place, and what was done."""

    at: float
    space: str
    engine: str
    version: str
    done: RedactionResult
    covers: tuple[str, ...] = COVERS
    notes: tuple[str, ...] = field(default=())


def redaction_json(report: RedactionReport) -> dict[str, Any]:
    done = report.done
    record = {
        "format": _REDACTION_FORMAT,
        "at": report.at,
        "space": report.space,
        "engine": report.engine,
        "version": report.version,
        "applied": done.applied,
        "secrets": done.secrets,
        "left": done.left,
        "unread": done.unread,
        "places": {
            place: {"holding": done.changed.get(place, 0), "kinds": dict(kinds)}
            for place, kinds in done.kinds.items()
        },
        "sessions": dict(done.sessions),
        "covers": list(report.covers),
        "cannot": list(done.cannot),
        "notes": list(report.notes),
    }
    return {**record, "checksum": _checksum(record)}


def redaction_text(report: RedactionReport) -> str:
    """Format the report as text, without lines that are in every report."""
    done, plain = report.done, plain_line
    cannot = [line for line in done.cannot if line not in STANDING]
    lines = [
        f"Redaction of space {plain(report.space)}, {_time_text(report.at)}",
        f"store      {plain(report.engine)}, Recollect {report.version}",
        "",
        headline(done),
        *(
            f"  {done.changed.get(place, 0):>8,} {_in_number(done.changed.get(place, 0), place)}: "
            + ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
            for place, kinds in done.kinds.items()
        ),
    ]
    if done.sessions:
        most = sorted(done.sessions.items(), key=lambda one: (-one[1], one[0]))[:_MOST_SESSIONS]
        lines += ["", "By session (the first ten; --json has all)"]
        lines += [f"  {count:>8,} {plain(name)}" for name, count in most]
    if cannot:
        lines += ["", "This cannot cover", *(f"  - {plain(line)}" for line in cannot)]
    if done.applied:
        lines += ["", IN_SHORT]
    if report.notes:
        lines += ["", *report.notes]
    if done.applied:
        lines += ["", f"checksum   {redaction_json(report)['checksum']}"]
    return "\n".join(lines)


def headline(done: RedactionResult) -> str:
    """Summarize the result in one line, with "no secrets" only if all content was readable."""
    found = []
    if done.secrets:
        masked = "masked" if done.applied else "found, nothing was changed"
        found.append(f"{count_text(done.secrets, 'secrets')} {masked}")
    if done.left:
        which = "more " if found else ""
        found.append(f"{done.left:,} {which}left unmasked: see below")
    if not found and done.unread:
        return f"No secret was found in what could be read; {done.unread:,} could not: see below"
    return "; ".join(found) or "No unmasked secret was found"
