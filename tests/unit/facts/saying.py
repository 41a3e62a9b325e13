"""Segments as somebody said them, for the tests of the rules."""

from __future__ import annotations

from recollect.facts.statements import find_statements
from recollect.rules.trust import trust_of_role
from recollect.values.fact import FactDraft
from recollect.values.message import EntryKey, MessageId, Role
from recollect.values.segment import Segment, SegmentId, Trust


def said(
    text: str,
    role: Role = "user",
    *,
    tool: str | None = None,
    trust: Trust | None = None,
    noise: str | None = None,
) -> Segment:
    """A segment with these words."""
    return Segment(
        id=SegmentId("5e9" * 10 + "00"),
        session="work",
        key=EntryKey("entry"),
        message_id=MessageId("message"),
        role=role,
        text=text,
        tokens=len(text),
        said_at=1_700_000_000.0,
        source="request",
        trust=trust or trust_of_role(role),
        tool=tool,
        noise=noise,
    )


def only(text: str, role: Role = "user") -> FactDraft:
    """The one draft of these words."""
    drafts = find_statements(said(text, role)).drafts
    assert len(drafts) == 1, [draft.content for draft in drafts]
    return drafts[0]
