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
    "messages that a running program has received and not stored yet: it masks them by its rules",
    "spools of other machines: messages in them were masked by the rules of that time",
    "what model providers logged or cached",
    "the client's own history and files",
)
SESSION_NAMES: Final = "names of sessions"
ORIGINS: Final = "places that messages were imported from"
JOB_KEYS: Final = "keys of jobs"
RECORD_NAMES: Final = "ids, names and keys in records"
_DIGEST_BYTES: Final = 32
"""256 bits: nobody can make other contents with the same checksum."""
_IN_SHORT: Final = (
    "Out of reach as always: backups, replicas, other machines' spools, providers' logs, the "
    "client's own history. --json lists it, and what this covers."
)
_FORMAT: Final = "recollect-certificate-1"
FILES_CANNOT: Final = ("disk blocks of replaced transcripts and notes, backups and other copies",)
_REDACTION_FORMAT: Final = "recollect-redaction-1"
_MAX_SESSIONS: Final = 10
"""Fits a terminal; `--json` lists all."""
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


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {_inflect(count, noun)}"


def _inflect(count: int, noun: str) -> str:
    if count != 1:
        return noun
    return _PLURAL.sub(lambda word: word[1] + "y" * (word[2] == "ies"), noun, count=1)


@dataclass(slots=True, kw_only=True)
class RedactionResult:
    """The number of secrets per place (such as messages or facts), before or after masking."""

    applied: bool
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    changed: Counter[str] = field(default_factory=Counter)
    sessions: Counter[str] = field(default_factory=Counter)
    unmasked: int = 0
    """Secrets that were not masked, because they are in names, in records that have changed, or in
    files that are open or belong to others."""
    unread: int = 0
    cannot: list[str] = field(default_factory=list)

    def add(self, other: RedactionResult) -> None:
        """Add the counts of other places."""
        self.kinds |= other.kinds
        self.changed += other.changed
        self.sessions += other.sessions
        self.unmasked += other.unmasked
        self.unread += other.unread
        self.cannot = list(dict.fromkeys([*other.cannot, *self.cannot]))

    @property
    def secrets(self) -> int:
        return sum(count for kinds in self.kinds.values() for count in kinds.values())

    @property
    def in_clear(self) -> int:
        """Number of secrets that are not masked, in all content that could be read."""
        return self.unmasked + (0 if self.applied else self.secrets)

    def count(
        self,
        place: str,
        kinds: Mapping[str, int],
        session: str | None = None,
        *,
        is_repeat: bool = False,
    ) -> None:
        """Count the secrets of one item; with `is_repeat`, of one that was counted before."""
        self.changed[place] += not is_repeat
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
    id_lines = "\n".join(sorted(set(identities)))
    return blake2b(id_lines.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def certificate_json(certificate: Certificate) -> dict[str, Any]:
    record = asdict(certificate)
    record["counts"] = dict(certificate.counts)
    return {"format": _FORMAT, **record}


def certificate_text(certificate: Certificate, *, standing: Collection[str] = ()) -> str:
    """Format a certificate as text. Lines in `standing` are omitted."""
    plain = plain_line
    counts = certificate.counts.items()
    removed_lines = [
        f"  {count:>8,}  {plain(_inflect(count, noun))}" for noun, count in counts if count
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
        *(removed_lines or ["         nothing was stored of it"]),
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


def _scope_text(scope: ForgetScope) -> str:
    parts = []
    if scope.segments:
        parts.append(count_text(scope.segments, "segments by id"))
    if scope.identities:
        parts.append(count_text(scope.identities, "messages by identity"))
    if scope.sessions:
        session_count = _inflect(len(scope.sessions), "sessions")
        parts.append(f"{session_count} {', '.join(map(plain_line, scope.sessions))}")
    if scope.said_before is not None:
        parts.append(f"all messages before {_time_text(scope.said_before)}")
    if scope.said_after is not None:
        parts.append(f"all messages from {_time_text(scope.said_after)} on")
    if scope.facts:
        parts.append(count_text(scope.facts, "facts by id"))
    if scope.whole_space:
        parts.append("the whole space")
    if scope.matching:
        parts.append("all messages that contain a text, which is not repeated here")
    if scope.pattern:
        parts.append("all that a pattern matches, which is not repeated here")
    return "; ".join(parts) or "nothing"


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _checksum(record: Mapping[str, Any]) -> str:
    fields = {name: value for name, value in record.items() if name != "checksum"}
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=_DIGEST_BYTES).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionReport:
    """The number of secrets per place, and what was done."""

    redacted_at: float
    space: str
    engine: str
    version: str
    result: RedactionResult
    covers: tuple[str, ...] = COVERS
    notes: tuple[str, ...] = field(default=())


def redaction_json(report: RedactionReport) -> dict[str, Any]:
    result = report.result
    record = {
        "format": _REDACTION_FORMAT,
        "at": report.redacted_at,
        "space": report.space,
        "engine": report.engine,
        "version": report.version,
        "applied": result.applied,
        "secrets": result.secrets,
        "left": result.unmasked,
        "unread": result.unread,
        "places": {
            place: {"holding": result.changed.get(place, 0), "kinds": dict(kinds)}
            for place, kinds in result.kinds.items()
        },
        "sessions": dict(result.sessions),
        "covers": list(report.covers),
        "cannot": list(result.cannot),
        "notes": list(report.notes),
    }
    return {**record, "checksum": _checksum(record)}


def redaction_text(report: RedactionReport) -> str:
    """Format the report as text, without lines that are in every report."""
    result, plain = report.result, plain_line
    cannot = [line for line in result.cannot if line not in STANDING]
    lines = [
        f"Redaction of space {plain(report.space)}, {_time_text(report.redacted_at)}",
        f"store      {plain(report.engine)}, Recollect {report.version}",
        "",
        headline(result),
        *(
            f"  {result.changed.get(place, 0):>8,} "
            f"{_inflect(result.changed.get(place, 0), place)}: "
            + ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
            for place, kinds in result.kinds.items()
        ),
    ]
    if result.sessions:
        top_sessions = sorted(result.sessions.items(), key=lambda item: (-item[1], item[0]))[
            :_MAX_SESSIONS
        ]
        lines += ["", "By session (the first ten; --json has all)"]
        lines += [f"  {count:>8,} {plain(name)}" for name, count in top_sessions]
    if cannot:
        lines += ["", "This cannot cover", *(f"  - {plain(line)}" for line in cannot)]
    if result.applied:
        lines += ["", IN_SHORT]
    if report.notes:
        lines += ["", *report.notes]
    if result.applied:
        lines += ["", f"checksum   {redaction_json(report)['checksum']}"]
    return "\n".join(lines)


def headline(result: RedactionResult) -> str:
    """Summarize the result in one line, with "no secrets" only if all content was readable."""
    phrases = []
    if result.secrets:
        outcome = "masked" if result.applied else "found, nothing was changed"
        phrases.append(f"{count_text(result.secrets, 'secrets')} {outcome}")
    if result.unmasked:
        prefix = "more " if phrases else ""
        phrases.append(f"{result.unmasked:,} {prefix}left unmasked: see below")
    if not phrases and result.unread:
        return f"No secret was found in what could be read; {result.unread:,} could not: see below"
    return "; ".join(phrases) or "No unmasked secret was found"
