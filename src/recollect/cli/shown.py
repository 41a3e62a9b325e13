"""A message and a fact as the commands print them, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from click import style

from recollect.core.formats.json_text import instant, when
from recollect.core.values.fact import MadeBy
from recollect.core.values.segment import SPEAKERS, Trust
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.values.fact import Fact
    from recollect.core.values.segment import Segment, StoredSegment

MAKERS: Final[dict[MadeBy, str]] = {
    "rules": "found by rules of an earlier version",
    "model": "found by a model",
    "user": "written by hand",
    "import": "imported",
}


def heading(stored: StoredSegment) -> str:
    """One line about a message: role, tool, time, session, id, and what is odd about it."""
    return heading_of(stored.segment, ())


def heading_of(segment: Segment, odd: tuple[str, ...] = ("spooled",)) -> str:
    """As `heading`, for a message that is not stored yet."""
    who = style(plain_line(f"{segment.role} {segment.tool or ''}"), fg="cyan")
    marks: list[str] = [segment.source] if segment.source == "note" else []
    if segment.source == "file" and segment.origin is not None:
        marks.append(plain_line(segment.origin))
    if segment.noise is not None:
        marks.append(f"noise: {segment.noise}")
    marks.extend(odd)
    note = f"  ({', '.join(marks)})" if marks else ""
    where = f"{when(segment.said_at)}  {plain_line(segment.session)}"
    return f"{who}  {where}  {style(shown_id(segment.id) + note, dim=True)}"


def segment_as_json(stored: StoredSegment) -> dict[str, Any]:
    """Everything that is stored of a message but for the line it was imported as."""
    segment = stored.segment
    return {
        "id": segment.id,
        "session": segment.session,
        "role": segment.role,
        "tool": segment.tool,
        "said_at": instant(segment.said_at),
        "text": segment.text,
        "tokens": segment.tokens,
        "source": segment.source,
        "trust": segment.trust,
        "noise": segment.noise,
        "origin": segment.origin,
        "sequence": stored.sequence,
    }


def shown_id(id: str) -> str:  # noqa: A002
    """An id on one line; one from a file may be any text."""
    return plain_line(id) or "(no id)"


def statement(fact: Fact) -> str:
    """A fact's words on one line, with its subject if they leave that open."""
    return plain_line(fact.told) or "(no words)"


def speaker(trust: Trust) -> str:
    """Who said something, and the trust that programs know it by."""
    return f"{SPEAKERS[trust]} ({trust})"


def said_by(trust: Trust) -> str:
    """Who said something, in a line."""
    return ("" if trust == "outside" else "said by ") + speaker(trust)


def fact_line(fact: Fact) -> str:
    """One line about a fact, without its words: type, speaker, time and maker."""
    until = "" if fact.current else ", replaced since"
    if fact.valid_to is not None:
        until = f" until {when(fact.valid_to)}"
    parts = [
        style(fact.type.replace("_", " "), bold=True),
        said_by(fact.trust),
        f"{when(fact.at)}{until}",
        MAKERS[fact.made_by],
        *(["pinned"] if fact.pinned else []),
    ]
    return "  ".join(parts)


def fact_as_json(fact: Fact) -> dict[str, Any]:
    """Everything that is stored of a fact, but for what only searching needs."""
    return {
        "id": fact.id,
        "type": fact.type,
        "content": fact.content,
        "context": fact.context,
        "subject": fact.subject,
        "attribute": fact.attribute,
        "trust": fact.trust,
        "made_by": fact.made_by,
        "since": instant(fact.at),
        "until": instant(fact.valid_to),
        "recorded_at": instant(fact.recorded_at),
        "change": fact.change,
        "superseded_by": fact.superseded_by,
        "session": fact.session,
        "pinned": fact.pinned,
        "sources": list(fact.sources),
        "evidence": [
            {"segment": span.segment, "start": span.start, "end": span.end}
            for span in fact.evidence
        ],
    }
