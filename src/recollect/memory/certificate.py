"""A certificate of forgetting: sealed with a checksum, as JSON and as a page for people.

Pure. It must never be given content, so nothing here can show any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from recollect.errors import FormatError
from recollect.memory.counted import counted, named
from recollect.values.message import MessageId
from recollect.values.upkeep import Certificate, ForgetScope

_DIGEST_BYTES: Final = 32
_IN_SHORT: Final = (
    "Out of reach as always: backups, replicas, other machines' spools, providers' logs, the "
    "client's own history. -v lists it, and what this covers."
)
_FORMAT: Final = "recollect-certificate-1"
_LATER: Final[Mapping[str, Any]] = {
    "matching": False,
    "said_after": None,
    "pattern": False,
    "facts": 0,
}
"""Ways of asking that came later: left out where they were not used."""


def seal(certificate: Certificate) -> Certificate:
    """The certificate with its checksum."""
    return replace(certificate, checksum=_checksum(certificate))


def extended(
    certificate: Certificate,
    *,
    counts: Mapping[str, int],
    covers: Iterable[str],
    cannot: Iterable[str],
) -> Certificate:
    """The certificate with what was done beside the store, as in files; sealed anew.

    What is out of reach stands first: there is something to do about it.
    """
    return seal(
        replace(
            certificate,
            counts={**certificate.counts, **counts},
            covers=tuple(dict.fromkeys((*certificate.covers, *covers))),
            cannot=tuple(dict.fromkeys((*cannot, *certificate.cannot))),
        )
    )


def is_intact(certificate: Certificate) -> bool:
    """Whether it is as it was sealed."""
    return certificate.checksum == _checksum(certificate)


def digest_of(identities: Iterable[MessageId]) -> str:
    """A hash over identities, whatever their order."""
    listed = "\n".join(sorted(set(identities)))
    return blake2b(listed.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def as_json(certificate: Certificate) -> dict[str, Any]:
    """One object that `from_json` takes back."""
    held = asdict(certificate)
    held["counts"] = dict(certificate.counts)
    for name, unasked in _LATER.items():  # as certificates said it before it could be asked for
        if held["asked"][name] == unasked:
            del held["asked"][name]
    return {"format": _FORMAT, **held}


def from_json(held: Mapping[str, Any]) -> Certificate:
    """What `as_json` gave; FormatError for anything else. Whether it is intact is not asked."""
    given = dict(held)
    if given.pop("format", None) != _FORMAT:
        raise FormatError("not a certificate of this version")
    try:
        asked = dict(given.pop("asked"))
        asked["sessions"] = tuple(asked["sessions"])
        given |= {name: tuple(given[name]) for name in ("covers", "cannot")}
        return Certificate(asked=ForgetScope(**asked), **given)
    except (KeyError, TypeError) as error:
        raise FormatError(f"not a certificate: {type(error).__name__}") from error


def as_text(
    certificate: Certificate,
    *,
    plain: Callable[[str], str] | None = None,
    standing: Collection[str] = (),
) -> str:
    """A page to read, print or keep; `plain` makes names fit to be shown.

    With what is true of every forgetting as `standing` a short one: neither that nor what it
    covers is repeated.
    """
    plain = plain or _printable
    counts = certificate.counts.items()
    removed = [f"  {count:>8,}  {plain(named(count, what))}" for what, count in counts if count]
    cannot = [line for line in certificate.cannot if line not in standing]
    lines = [
        "Certificate of forgetting",
        "",
        f"space      {plain(certificate.space)}",
        f"when       {_time(certificate.at)}",
        f"asked      {_asked(certificate.asked, plain)}",
        f"kept by    {plain(certificate.engine)}, Recollect {certificate.version}",
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
    seals = (
        f"identities {certificate.identities_digest}",
        f"checksum   {certificate.checksum}",
    )
    return "\n".join((*lines, "", *seals))


def _printable(text: str) -> str:
    """One line that moves no cursor; names come from clients."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def _asked(asked: ForgetScope, plain: Callable[[str], str]) -> str:
    parts = []
    if asked.segments:
        parts.append(counted(asked.segments, "segments by id"))
    if asked.identities:
        parts.append(counted(asked.identities, "messages by identity"))
    if asked.sessions:
        parts.append(
            f"{named(len(asked.sessions), 'sessions')} " + ", ".join(map(plain, asked.sessions))
        )
    if asked.said_before is not None:
        parts.append(f"all said before {_time(asked.said_before)}")
    if asked.said_after is not None:
        parts.append(f"all said from {_time(asked.said_after)} on")
    if asked.facts:
        parts.append(counted(asked.facts, "facts by id"))
    if asked.matching:
        parts.append("all that holds a text, which is not repeated here")
    if asked.pattern:
        parts.append("all that a pattern matches, which is not repeated here")
    return "; ".join(parts) or "nothing"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _checksum(certificate: Certificate) -> str:
    held = as_json(certificate)
    del held["checksum"]
    canonical = json.dumps(held, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=_DIGEST_BYTES).hexdigest()
