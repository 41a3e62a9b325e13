"""Adds what came of a request to a recalled request. In a coding session, many tool calls are
between the user's request and the agent's last message, which tells the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from recollect.core.ports import Archive
from recollect.core.rules.text import clipped_sentences
from recollect.core.search.moments import is_about_order
from recollect.core.turn.inject import day_and_minute
from recollect.core.values.recall import RecalledPassage, RecallRequest
from recollect.core.values.segment import Segment

MAX_REQUESTS: Final = 3
"""Requests whose outcomes are added, the best first."""
OUTCOME_CHARS: Final = 400
_MIN_OUTCOME_CHARS: Final = 40
"""Shorter messages, such as "Understood.", tell nothing. Not measured."""
_REACH: Final = 60
"""Messages after a request among which its outcome is. Not measured; bounds the query."""


async def add_outcomes(
    passages: Sequence[RecalledPassage], archive: Archive, request: RecallRequest
) -> list[RecalledPassage]:
    """Return the passages, best first, with the outcome of each of the best requests behind it.
    Prompts such as "where did we leave off?" are left out."""
    known_ids = {passage.segment for passage in passages}
    with_outcomes: list[RecalledPassage] = []
    looked_up = 0
    for passage in passages:
        if passage.role == "user" and is_about_order(passage.text):
            continue
        with_outcomes.append(passage)
        if passage.role != "user" or passage.session is None or looked_up == MAX_REQUESTS:
            continue
        looked_up += 1
        outcome = await _outcome_of(passage, archive)
        if outcome is None or outcome.id in known_ids or _is_shown(outcome, request):
            continue
        if len(outcome.text) < _MIN_OUTCOME_CHARS:
            continue
        known_ids.add(outcome.id)
        with_outcomes.append(_quoted(outcome, passage))
    return with_outcomes


async def _outcome_of(passage: RecalledPassage, archive: Archive) -> Segment | None:
    sequence = passage.order[1]
    page = await archive.page(after=sequence, limit=_REACH, session=passage.session)
    outcome = None
    for stored_segment in page:
        segment = stored_segment.segment
        if segment.role == "user" and segment.tool is None:
            break
        if segment.role == "assistant" and segment.tool is None and segment.text.strip():
            outcome = segment
    return outcome


def _is_shown(segment: Segment, request: RecallRequest) -> bool:
    return (
        segment.key in request.shown
        or segment.message_id in request.shown_messages
        or any(name.startswith(segment.id) for name in request.quoted)
    )


def _quoted(segment: Segment, passage: RecalledPassage) -> RecalledPassage:
    day, minute = day_and_minute(segment.said_at)
    text = clipped_sentences(segment.text.strip(), OUTCOME_CHARS)
    return replace(
        passage,
        text=text,
        role=segment.role,
        speaker=None,
        said_at=f"{day} {minute}".strip(),
        message_id=segment.message_id,
        segment=segment.id,
        ordinal=None if text == segment.text.strip() else 0,
        replaced_by="",
        order=(segment.said_at, passage.order[1] + 1, 0),
    )
