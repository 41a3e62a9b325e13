"""What an agent says of itself: `/status` and `/context`, from how it stands now."""

from __future__ import annotations

from recollect.agent.commands import context_text, status_text
from recollect.agent.steps import Stepping
from recollect.formats.json_text import encode
from recollect.session.index import SessionRecord


def status_of(stepping: Stepping, record: SessionRecord | None) -> str:
    """What `/status` answers; `record` is the session's line of the index."""
    conversation = stepping.conversation
    return status_text(
        session_id=conversation.session_id,
        model=stepping.model.name,
        window_tokens=stepping.window_tokens,
        messages=len(conversation.shown()),
        compactions=conversation.compactions,
        record=record,
    )


def context_of(stepping: Stepping, *, detail: bool) -> str:
    """What `/context` answers; the workspace is read anew for it."""
    stepping.begin()
    messages = [one.message for one in stepping.conversation.shown()]
    return context_text(
        stepping.workspace,
        stepping.shape.tools,
        system_chars=len(stepping.shape.system),
        messages=len(messages),
        message_chars=sum(len(encode(dict(one)).decode()) for one in messages),
        detail=detail,
    )
