"""Quote a passage of a stored message: its text, who said it when, and where it is found."""

from __future__ import annotations

from datetime import UTC, datetime

from recollect.config.settings import Citations
from recollect.search.speakers import speaker_of
from recollect.values.lookup import Candidate
from recollect.values.recalled import RecalledPassage
from recollect.values.segment import Segment


def quote(segment: Segment, one: Candidate, score: float, citations: Citations) -> RecalledPassage:
    """A passage as the block shows it."""
    day, minute = day_and_minute(segment.said_at)
    text = segment.text[one.start : one.end]
    return RecalledPassage(
        text=text,
        role=segment.role,
        said_at=f"{day} {minute}".strip(),
        score=score,
        speaker=_speaker(segment, one, cited=citations != "off"),
        source=_source(segment, citations),
        message_id=segment.message_id,
        segment=segment.id,
        ordinal=None if text == segment.text.strip() else one.ordinal,
        sitting=f"{segment.session}\n{day}",
        order=(segment.said_at, one.sequence, one.start),
    )


def day_and_minute(at: float) -> tuple[str, str]:
    """Day and minute, as shown; an imported time may be one that no calendar knows."""
    try:
        said = datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        return "time unknown", ""
    day, _, minute = said.isoformat(" ", "minutes").removesuffix("+00:00").partition(" ")
    return day, minute


def _speaker(segment: Segment, one: Candidate, *, cited: bool) -> str:
    """Who said it; empty where the text begins with the name itself, or a file is cited."""
    if segment.source == "file":
        return "" if cited else "memory file"
    if segment.tool is not None:
        return f"call of {segment.tool}" if segment.role == "assistant" else f"{segment.tool} said"
    name = speaker_of(segment.text) if segment.role == "user" else ""
    if not name:
        return segment.role
    return "" if one.ordinal == 0 else name


def _source(segment: Segment, citations: Citations) -> str:
    """What is cited: a file's line always, a segment's id where citations are on."""
    if citations == "off":
        return ""
    if segment.source == "file":
        return segment.origin or ""
    return segment.id[:8] if citations == "on" else ""
