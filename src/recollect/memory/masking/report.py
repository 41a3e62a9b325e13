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

from recollect.memory.redact import Redacted

_DIGEST_BYTES: Final = 32
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
) -> Redacted:
    """A redaction together with what was found in files."""
    return replace(
        done,
        kinds={**done.kinds, **kinds},
        changed={**done.changed, **changed},
        sessions=dict(Counter(done.sessions) + Counter(sessions)),
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


def as_text(report: RedactionReport, *, plain: Callable[[str], str]) -> str:
    """A page for people; `plain` makes names print as they read."""
    done = report.done
    masked = "masked" if done.applied else "found, nothing was changed"
    lines = [
        f"Redaction of space {plain(report.space)}, {_time(report.at)}",
        f"kept by    {plain(report.engine)}, Recollect {report.version}",
        "",
        f"{done.secrets:,} secrets {masked}" if done.secrets else "No secret stands in clear",
        *_places(done),
    ]
    if done.sessions:
        lines += ["", "By session", *_sessions(done, plain)]
    if done.applied:
        lines += ["", "This covers", *(f"  - {line}" for line in report.covers)]
    if done.cannot:
        lines += ["", "This cannot cover", *(f"  - {plain(line)}" for line in done.cannot)]
    if report.notes:
        lines += ["", *report.notes]
    if done.secrets and not done.applied:
        lines += ["", "Mask them with `recollect redact --apply`."]
    if done.applied:
        lines += ["", f"checksum   {as_json(report)['checksum']}"]
    return "\n".join(lines)


def _places(done: Redacted) -> list[str]:
    return [
        f"  {done.changed.get(place, 0):>8,} {place}: "
        + ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        for place, kinds in done.kinds.items()
    ]


def _sessions(done: Redacted, plain: Callable[[str], str]) -> list[str]:
    most = sorted(done.sessions.items(), key=lambda one: (-one[1], one[0]))
    lines = [f"  {count:>8,} {plain(name)}" for name, count in most[:_MOST_SESSIONS]]
    left = len(most) - _MOST_SESSIONS
    return [*lines, f"  … and {left:,} more sessions"] if left > 0 else lines


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _checksum(held: Mapping[str, Any]) -> str:
    without = {name: value for name, value in held.items() if name != "checksum"}
    canonical = json.dumps(without, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=_DIGEST_BYTES).hexdigest()
