"""Secrets of every kind of the redaction bench, to be planted wherever a text can come from.

Owns which of them count: a value that redaction masks in its own text. Never tells a secret or its
text, so that a failing test shows no line of the held-out half: places and ids alone."""

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tests.disk import bytes_of
from tests.sizes import at_size

from recollect.core.rules.redaction import recognisable_secrets, redact
from recollect_bench.redaction_data import HALVES, Kind, load_kinds

KINDS = tuple(kind for half in HALVES for kind in load_kinds(half) if not kind.lookalike)
EVERY = at_size(6, 1)
"""In CI a place gets one kind in six, other places the others; in full every place gets all."""
SHORTEST = 8
"""A shorter value may stand in a file by chance."""
_WORDS = re.compile("[A-Za-z_-]{,19}[0-9]{,3}")
"""Two words of the bench's list: other kinds draw the same ones."""


def kinds_of(place: str) -> tuple[Kind, ...]:
    """The kinds that are planted in a place."""
    return KINDS[zlib.crc32(place.encode()) % EVERY :: EVERY]


class Planted:
    """What was planted where: other values in every place, as a known one is masked anywhere."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}
        self._told_apart: set[str] = set()
        self._known: list[str] = []

    def __repr__(self) -> str:
        return f"Planted({len(self._secrets)} secrets)"

    def texts(self, place: str, *, most: int | None = None) -> list[str]:
        """A text of each kind, none of which was given before."""
        return [text for text, _ in self._filled(place, most)]

    def joined(self, place: str, *, most: int | None = None) -> str:
        """One text of them all: what counts is masked in the whole of it."""
        filled = list(self._filled(place, most, count=False))
        whole = "\n\n".join(text for text, _ in filled)
        masked = redact(whole).text
        for _, values in filled:
            self._count(values, masked, place)
        return whole

    def told_apart(self, most: int) -> str:
        """Some of the first secrets, without what gave them away."""
        return " ".join(list(recognisable_secrets(self._known))[:most])

    def _filled(
        self, place: str, most: int | None, *, count: bool = True
    ) -> Iterator[tuple[str, dict[str, str]]]:
        for kind in kinds_of(place)[:most]:
            text, values = kind.fill(zlib.crc32(place.encode()))
            if count:
                done = redact(text)
                self._count(dict.fromkeys(values, kind.id), done.text, place)
                spans = {text[one.start : one.end] for one in done.spans}
                self._known += [one for one in values if one in spans]
            yield text, dict.fromkeys(values, kind.id)

    def _count(self, values: dict[str, str], masked: str, place: str) -> None:
        for value, kind in values.items():
            if len(value) < SHORTEST or _WORDS.fullmatch(value):
                continue
            self._told_apart.add(f"{place}: {kind}")
            if value not in masked:
                self._secrets[value] = f"{place}: {kind}"

    def share(self, place: str) -> float:
        """Return how much of a place's kinds are masked, of those whose value is unmistakable in a
        file: neither short nor words."""
        opening = f"{place}: "
        kinds = {kind for kind in self._told_apart if kind.startswith(opening)}
        return len(kinds & set(self._secrets.values())) / len(kinds)

    def found_in(self, data: bytes) -> list[str]:
        """Place and kind of each secret that stands in the bytes, also escaped or quoted."""
        likely = defaultdict(list)
        sought = set()
        for secret in self._secrets:  # a run of letters and digits is the same however spelled
            run = max(re.findall("[A-Za-z0-9]+", secret), key=len, default="")
            if len(run) < SHORTEST:
                sought.add(secret)
            else:
                likely[run[:SHORTEST].encode()].append(secret)
        for run in set(re.findall(rb"[A-Za-z0-9]{%d,}" % SHORTEST, data)):
            for at in range(len(run) - SHORTEST + 1):
                sought.update(likely.get(run[at : at + SHORTEST], ()))
        return sorted(
            self._secrets[secret]
            for secret in sought
            if any(form in data for form in _spelled(secret))
        )


def _spelled(secret: str) -> set[bytes]:
    escaped = json.dumps(secret)[1:-1]
    forms = (secret, escaped, json.dumps(escaped)[1:-1], quote(secret), quote(secret, safe=""))
    return {form.encode() for form in forms}


def bytes_below(folder: Path, *, but: frozenset[Path] = frozenset()) -> bytes:
    """Every byte below a folder, and every value of its databases as it reads unpacked.

    `but` names what was put there: folders and files of the test's own.
    """
    held: list[bytes] = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not but.isdisjoint((path, *path.parents)):
            continue
        held += (str(path).encode(), bytes_of(path))
    return b"\0".join(held)
