"""A segment as the commands show it: who, when, where, and its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.store_options import instant, when

if TYPE_CHECKING:
    from rich.text import Text

    from recollect.values.segment import Segment, StoredSegment

_ROLE_STYLES = {"user": "green", "assistant": "cyan", "tool": "yellow", "system": "magenta"}


def heading(
    stored: StoredSegment, *, score: float | None = None, number: int | None = None
) -> Text:
    """One line: number, score, role, tool, time, session, id, and what is odd about it."""
    odd = ("cold",) if stored.cold else ()
    return heading_of(stored.segment, odd, score=score, number=number)


def heading_of(
    segment: Segment,
    odd: tuple[str, ...] = ("spooled",),
    *,
    score: float | None = None,
    number: int | None = None,
) -> Text:
    """As `heading`, for one that is not stored yet."""
    from rich.text import Text as RichText

    line = RichText()
    if number is not None:
        line.append(f"{number:>3}  ", style="bold")
    if score is not None:
        line.append(f"{score:.2f}  ", style="bold")
    line.append(segment.role, style=_ROLE_STYLES.get(segment.role, ""))
    if segment.tool is not None:
        line.append(f" {plain_line(segment.tool)}", style="yellow")
    line.append(f"  {when(segment.said_at)}  {plain_line(segment.session)}  ")
    line.append(segment.id, style="dim")
    marks: list[str] = [segment.source] if segment.source == "note" else []
    if segment.source == "file" and segment.origin is not None:
        marks.append(plain_line(segment.origin))
    if segment.noise is not None:
        marks.append(f"noise: {segment.noise}")
    marks.extend(odd)
    if marks:
        line.append(f"  ({', '.join(marks)})", style="dim")
    return line


def as_json(stored: StoredSegment) -> dict[str, Any]:
    """Everything that is kept of it but for the line it was imported as."""
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
        "topics": list(segment.topics),
        "entities": list(segment.entities),
        "origin": segment.origin,
        "sequence": stored.sequence,
        "cold": stored.cold,
    }
