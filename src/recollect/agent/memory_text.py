"""What `/memory` answers, as text: short lines that a person can read and type ids from.

Pure. Must never let the words of a fact pass for anything else: they stand on one line, without
signs that a terminal would act upon. Always holds: an id that is shown is one fact's alone.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from recollect.values.fact import Fact
from recollect.values.segment import SPEAKERS
from recollect.values.upkeep import Certificate

if TYPE_CHECKING:
    from recollect.facts.results import FactSource, FactWhy, FactWritten

MOST_SHOWN: Final = 30
"""About a screen; the command line lists them all."""
LEAST_ID_CHARS: Final = 8
EXCERPT_CHARS: Final = 160
_OUTCOMES: Final = {"added": "Noted", "replaced": "Noted, in place of what was known"}


def facts_text(
    found: Sequence[Fact], every: Sequence[Fact], *, searched: bool, elsewhere: str
) -> str:
    """What `/memory show` and `/memory search` answer; `every` are all that ids can mean."""
    if not found:
        if searched:
            return "No fact holds all of these words. /memory show lists what is known."
        return "Nothing is known yet. Say what to remember, or use /memory add STATEMENT."
    pinned = [one for one in found if one.pinned]
    others = [one for one in found if not one.pinned]
    room = max(MOST_SHOWN - len(pinned), 0)
    shown = [*pinned[:MOST_SHOWN], *others[len(others) - min(room, len(others)) :]]
    chars = _id_chars(every)
    lines = [_line(one, chars) for one in shown]
    if left := len(found) - len(shown):
        lines.append(f"… and {left} older ones: /memory search WORDS, or `{elsewhere}`")
    return "\n".join(lines)


def written_text(written: FactWritten) -> str:
    """What `/memory add` answers."""
    fact = written.fact
    if written.outcome == "known":
        known = "" if fact is None else f" ({fact.id[:LEAST_ID_CHARS]}: {one_line(fact.told)})"
        return f"That is known already{known}."
    if fact is None:
        return f"That was not noted: {written.reason}."
    lines = [f"{_OUTCOMES[written.outcome]}, as {fact.id}: {one_line(fact.told)}"]
    lines.extend(f"  before: {one_line(one.told)}" for one in written.replaced)
    if written.masked:
        lines.append(f"  {written.masked} secrets in it were masked")
    return "\n".join(lines)


def why_text(why: FactWhy, *, session_id: str) -> str:
    """What `/memory why` answers."""
    fact = why.fact
    lines = [one_line(fact.told), f"{_marks(fact)}, {fact.type.replace('_', ' ')}, {fact.id}"]
    if fact.valid_to is not None:
        lines.append(f"It held until {_when(fact.valid_to)}.")
    if why.rests_on is not None:
        lines.append("You put it into these words; what it was before rests on:")
    elif not why.sources:
        lines.append("It was written or imported, and rests on no message.")
    lines.extend(_source_line(one, session_id) for one in why.sources)
    return "\n".join(lines)


def forgotten_text(
    certificate: Certificate,
    *,
    unreached: Sequence[str],
    messages: int,
    versions: Sequence[str],
    elsewhere: str,
) -> str:
    """What `/memory forget` answers: what is gone, and what is not."""
    count = certificate.counts.get("facts", 0)
    gone = "1 fact" if count == 1 else f"{count} facts"
    lines = [f"Forgotten for good: {gone}. Nothing is extracted again in the same words."]
    if messages:
        said = "1 message stays" if messages == 1 else f"{messages} messages stay"
        lines.append(f"{said} that it came from. To forget that, too, end this agent and run")
        lines.append(f"  {elsewhere}")
    if versions:
        named = ", ".join(versions)
        lines.append(f"What it said before or after is kept as history: {named}")
    lines.extend(f"Not reached: {one}" for one in unreached)
    return "\n".join(lines)


def one_line(text: str) -> str:
    """A text on one line, cut where it is long, without signs that a terminal acts upon."""
    kept = "".join(
        " " if sign.isspace() else sign
        for sign in text
        if sign.isspace() or unicodedata.category(sign)[0] != "C"
    )
    line = " ".join(kept.split())
    return line if len(line) <= EXCERPT_CHARS else f"{line[: EXCERPT_CHARS - 1]}…"


def _id_chars(facts: Sequence[Fact]) -> int:
    """How much of an id tells every fact from the others."""
    longest = max((len(one.id) for one in facts), default=LEAST_ID_CHARS)
    for chars in range(LEAST_ID_CHARS, longest):
        if len({one.id[:chars] for one in facts}) == len(facts):
            return chars
    return longest


def _line(fact: Fact, chars: int) -> str:
    mark = "*" if fact.pinned else " "
    return f"{mark} {fact.id[:chars]}  {one_line(fact.told)}  ({_marks(fact)})"


def _marks(fact: Fact) -> str:
    said = SPEAKERS[fact.trust]
    by = said if fact.trust == "outside" else f"said by {said}"
    return f"{by}, {_when(fact.at)[:10]}"


def _source_line(source: FactSource, session_id: str) -> str:
    if source.stored is None:
        return f"- a message that is not there any more ({source.id})"
    segment = source.stored.segment
    where = "this session" if segment.session == session_id else f"session {segment.session}"
    spans = [segment.text[one.start : one.end] for one in source.spans]
    quoted = one_line(" … ".join(spans) if spans else segment.text)
    who = segment.role if segment.tool is None else f"{segment.role} {segment.tool}"
    return f"- {who}, {_when(segment.said_at)}, {one_line(where)}: »{quoted}« ({segment.id})"


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return "at a time nobody knows"
