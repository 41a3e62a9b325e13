"""What a redaction of what is stored tells people: a page, and one JSON object with a checksum.

Pure. It is given counts, kinds and names, never a secret, so nothing here can show one. Always
holds: the checksum is over everything else in the object, so one that was changed shows it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from recollect.memory.counted import counted, named
from recollect.memory.masking.findings import CANNOT, Redacted

_DIGEST_BYTES: Final = 32
FILES_CANNOT: Final = (
    "blocks of the disk on which replaced transcripts and notes stood, backups and other copies",
)
_FORMAT: Final = "recollect-redaction-1"
_MOST_SESSIONS: Final = 10
COVERS: Final = (
    "the archive: messages, passages and the index of words; vectors of them are made anew",
    "facts and digests",
    "the ledger: replay marks what was masked",
    "jobs, session states, summaries and receipts",
    "the spool of this machine, and its embedding cache, which is emptied",
    "transcripts of Recollect's own agent in this space, and long outputs beside them",
)
IN_SHORT: Final = (
    "Backups, replicas, other machines' spools, providers' logs and the client's own history are "
    "out of reach; -v lists what this covers."
)
STANDING: Final = frozenset((*CANNOT, *FILES_CANNOT))
"""What is true of every redaction, so that only the whole page repeats it."""
COVERS_NOTES: Final = "daily notes of the workspace that was named"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionReport:
    """What was found, where, and what was done about it."""

    at: float
    space: str
    engine: str
    version: str
    done: Redacted
    covers: tuple[str, ...] = COVERS
    notes: tuple[str, ...] = field(default=())
    """What to do so that it lasts, one sentence each."""


def joined(
    done: Redacted,
    *,
    kinds: Mapping[str, Mapping[str, int]],
    changed: Mapping[str, int],
    sessions: Mapping[str, int],
    cannot: Iterable[str],
    left: int = 0,
    unread: int = 0,
) -> Redacted:
    """A redaction together with what was found in files."""
    return replace(
        done,
        kinds={**done.kinds, **kinds},
        changed={**done.changed, **changed},
        sessions=dict(Counter(done.sessions) + Counter(sessions)),
        left=done.left + left,
        unread=done.unread + unread,
        cannot=tuple(dict.fromkeys((*cannot, *done.cannot))),
    )


def as_json(report: RedactionReport) -> dict[str, Any]:
    """One object, sealed."""
    done = report.done
    held = {
        "format": _FORMAT,
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
    return {**held, "checksum": _checksum(held)}


def is_intact(held: Mapping[str, Any]) -> bool:
    """Whether an object of `as_json` is as it was made."""
    return held.get("checksum") == _checksum(held)


def as_text(report: RedactionReport, *, plain: Callable[[str], str], whole: bool = True) -> str:
    """A page for people, without `whole` the short one; `plain` makes names print as they read."""
    done = report.done
    told = done.cannot if whole else [line for line in done.cannot if line not in STANDING]
    lines = [
        f"Redaction of space {plain(report.space)}, {_time(report.at)}",
        f"kept by    {plain(report.engine)}, Recollect {report.version}",
        "",
        headline(done),
        *_places(done),
    ]
    if done.sessions:
        lines += ["", "By session", *_sessions(done, plain)]
    if done.applied and whole:
        lines += ["", "This covers", *(f"  - {line}" for line in report.covers)]
    if told:
        lines += ["", "This cannot cover", *(f"  - {plain(line)}" for line in told)]
    if done.applied and not whole:
        lines += ["", IN_SHORT]
    if report.notes:
        lines += ["", *report.notes]
    if done.secrets and not done.applied:
        lines += ["", "Mask them with `recollect redact --apply`."]
    if done.applied:
        lines += ["", f"checksum   {as_json(report)['checksum']}"]
    return "\n".join(lines)


def headline(done: Redacted) -> str:
    """What was found, in one line; never that nothing stands in clear where something may."""
    found = []
    if done.secrets:
        masked = "masked" if done.applied else "found, nothing was changed"
        found.append(f"{counted(done.secrets, 'secrets')} {masked}")
    if done.left:
        stand = "stands" if done.left == 1 else "stand"
        which = "more " if found else ""
        found.append(f"{done.left:,} {which}{stand} in clear where it is not masked: see below")
    if not found and done.unread:
        return f"No secret was found in what could be read; {done.unread:,} could not: see below"
    return "; ".join(found) or "No secret stands in clear"


def _places(done: Redacted) -> list[str]:
    return [
        f"  {done.changed.get(place, 0):>8,} {named(done.changed.get(place, 0), place)}: "
        + ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        for place, kinds in done.kinds.items()
    ]


def _sessions(done: Redacted, plain: Callable[[str], str]) -> list[str]:
    most = sorted(done.sessions.items(), key=lambda one: (-one[1], one[0]))
    lines = [f"  {count:>8,} {plain(name)}" for name, count in most[:_MOST_SESSIONS]]
    left = len(most) - _MOST_SESSIONS
    return [*lines, f"  … and {left:,} more {named(left, 'sessions')}"] if left > 0 else lines


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _checksum(held: Mapping[str, Any]) -> str:
    without = {name: value for name, value in held.items() if name != "checksum"}
    canonical = json.dumps(without, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=_DIGEST_BYTES).hexdigest()
