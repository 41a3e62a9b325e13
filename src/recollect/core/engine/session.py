"""What goes in and out of the engine: a session's handle, what to send, what was learned."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from recollect.core.boundary import Boundary
from recollect.core.engine.archive import Where
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.keeping import ArchiveState
from recollect.core.formats.codec import CODECS
from recollect.core.formats.replies import StreamedReply, may_be_reply
from recollect.core.turn.align import LastRequest
from recollect.core.turn.draft import Draft
from recollect.core.values.compaction import CompactionResult, Due
from recollect.core.values.edit import Edit
from recollect.core.values.history import SessionId, SessionState, SpaceId
from recollect.core.values.model import LimitDoubt, Overflow, Usage
from recollect.core.values.reason import NOT_RUN, Reason
from recollect.core.values.recall import FILE_SESSIONS, Recalled
from recollect.core.values.report import Report, StageLine, joined_lines
from recollect.core.values.segment import StoredMessage, StoredSegment
from recollect.core.values.upkeep import ForgetOrder


class Session:
    """A conversation's handle: where its state lives between turns of this process."""

    def __init__(self, id: SessionId, state: SessionState | None = None) -> None:  # noqa: A002
        self.id = id
        self.state = state or SessionState()
        self.lock = asyncio.Lock()
        self.remembered = LastRequest()
        self.keeping = ArchiveState(loaded=state is not None)
        self.sent_messages = len(self.state.path)
        """How much of the path the last request showed; replies follow it."""
        self.last_draft: Draft | None = None
        """The last turn as it was prepared: what a compaction between turns starts from."""
        self.compactions: list[asyncio.Task[CompactionResult]] = []
        """Compactions that run or wait, in their order."""
        self.flush: asyncio.Task[CompactionResult] | None = None
        """Notes are being written."""
        self.compacting: asyncio.Task[CompactionResult] | None = None
        """What began last: a compaction, or writing notes."""
        self.compacted_meanwhile: CompactionResult | None = None
        """One that ended while nobody waited; told in the next report."""
        self.compaction_failure: Reason | None = None
        """How a compaction failed since the last reply; told with the next one, once."""
        self.message_provider: str | None = None
        """The channel by which its messages come, where its host says so: told to hooks."""
        self.observation: Observation | None = None
        """What the last reply taught."""
        self.learned = False
        """A reply taught something since the last turn was written."""


async def load(session: Session, reader: SessionKeeper | None, boundary: Boundary) -> SessionState:
    """The session's state, as it was left where the store knows it; with its lock held."""
    if reader is not None:
        known = await reader.load(session.id, session.state, session.keeping, boundary)
        if known.path is not session.state.path:  # what was worked out belongs to the other
            session.remembered, session.sent_messages = LastRequest(), len(known.path)
        session.state = known
    return session.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What to send, and what was done to it."""

    request: Any = field(repr=False)
    """As it came in: the body's bytes, or a dict to call a client with."""
    report: Report
    state: SessionState
    recalled: Recalled | None = field(default=None, repr=False)
    """What memory found for this turn: the gate's verdict, and every hit with its score explained;
    None where memory was not asked."""
    compaction: CompactionResult | None = field(default=None, repr=False)
    """The compaction that this turn waited for, however it ended; None where none was due."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that stand for this session now."""
        return self.state.edits

    def __repr__(self) -> str:
        report = self.report
        return (
            f"Context(session={report.session!r}, turn={report.turn}, "
            f"messages={len(report.view.rows)}, tokens={report.tokens_after}, "
            f"limit={report.limit_tokens}, failures={len(report.failures)})"
        )

    def __str__(self) -> str:
        return str(self.report)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a reply taught us."""

    usage: Usage | None
    calibration_ratio: float
    learned_window_tokens: int | None
    doubted_limit: LimitDoubt | None = None
    """Why the limit that an error named was not taken for the window; its value is a sentence."""
    failures: tuple[StageLine, ...] = ()
    """What failed or came late: in reading the reply, in keeping what was said, and in what runs
    beside the turns (jobs, a compaction that was due)."""
    due: Due = "nothing"
    """What the window asks for next: a flush, a compaction, or nothing."""
    due_reason: Reason = NOT_RUN
    flush_first: bool = False
    """A compaction is due, and notes were not written in this cycle yet."""
    broken_off: bool = False
    """The reply was streamed and did not come to its end; it is kept as far as it came."""
    archived: Where | None = None
    """The worst place that anything of this turn is in: the store, the spool, or nowhere yet.
    Earlier messages are there, too. None if nothing of the reply is stored: no memory is kept, the
    session has no prepared request, or the reply is none of a provider's. Also None without
    `wait`, and for a reply to an earlier request than the last."""
    being_stored: bool = field(default=False, repr=False)
    """The reply is being stored, and the caller did not wait for it."""

    def __str__(self) -> str:
        used = self.usage
        tokens = f"{used.input_tokens:,} in, {used.output_tokens:,} out" if used else "not told"
        if self.archived is not None:
            kept = f"stored in: {self.archived}"
        else:
            kept = "being stored" if self.being_stored else "nothing of this reply is stored"
        failed = joined_lines(self.failures)
        lines = [f"Reply: tokens {tokens}", kept, f"due: {self.due}"]
        if self.broken_off:
            lines.insert(1, "broken off: stored as far as it came")
        if self.learned_window_tokens is not None:
            lines.append(f"window learned from the provider: {self.learned_window_tokens:,} tokens")
        if self.doubted_limit is not None:
            lines.append(
                f"the limit that the error named was not learned: {self.doubted_limit.value}"
            )
        return "; ".join(lines) + "\n" + (f"Failed: {failed}" if failed else "No failures")

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "usage": None if self.usage is None else asdict(self.usage),
            "calibration_ratio": self.calibration_ratio,
            "learned_window_tokens": self.learned_window_tokens,
            "doubted_limit": None if self.doubted_limit is None else self.doubted_limit.value,
            "failures": [line.to_dict() for line in self.failures],
            "due": self.due,
            "due_reason": {"said": str(self.due_reason), **self.due_reason.to_dict()},
            "flush_first": self.flush_first,
            "broken_off": self.broken_off,
            "archived": self.archived,
        }


def check_order(order: ForgetOrder, facts: Sequence[str]) -> None:
    """ValueError for an order to forget that names nothing, or everything by accident."""
    texts = (order.matching, order.pattern)
    if not (order.segments or order.sessions or order.by_time or facts or any(texts)):
        raise ValueError(
            "name what to forget: messages, sessions, facts, matching, pattern, said_after or "
            "said_before; `delete_space` deletes everything"
        )
    if any(text is not None and not text.strip() for text in texts):
        raise ValueError("matching and pattern must hold a text: an empty one matches everything")
    if order.pattern is not None:
        from recollect.core.upkeep.masks import own_patterns

        own_patterns((order.pattern,))


def listed_message(stored: StoredSegment) -> StoredMessage:
    """A stored message as a program lists it."""
    one = stored.segment
    return StoredMessage(
        id=one.id,
        session=one.session,
        role=one.role,
        text=one.text,
        said_at=one.said_at,
        tool=one.tool,
        place=stored.sequence,
    )


def check_session_name(given: Any) -> SessionId:
    """The name of a session; TypeError or ValueError for what names none."""
    if not isinstance(given, str):
        raise TypeError(
            f"a session is named by a string, not by {type(given).__name__}: give its name first, "
            "or the Session that `session(name)` returned"
        )
    if not given.strip():
        raise ValueError("this session has no name: give each conversation one of its own")
    if given.startswith(FILE_SESSIONS):  # every session of the space may read those
        raise ValueError(f"{FILE_SESSIONS}… names a memory file; name the session otherwise")
    return given


def check_state(given: Any) -> None:
    """TypeError for what is no session's state, saying what to give."""
    if given is not None and not isinstance(given, SessionState):
        raise TypeError(
            f"the state of a session must be a SessionState, not a {type(given).__name__}: "
            "`read_state` makes one of the bytes that `write_state` returned"
        )


def check_space_name(given: Any) -> SpaceId:
    """The name of a space; TypeError or ValueError for what names none."""
    if not isinstance(given, str):
        raise TypeError(
            f"a space is named by a string, not by {type(given).__name__}: leave `space` out for "
            "the one called 'default'"
        )
    if not given.strip():
        raise ValueError("this space has no name: name it, or leave `space` out for 'default'")
    return given


def checked_request(given: Any) -> bytes | Mapping[str, Any]:
    """A request as it was given; TypeError for what is none, saying what to give."""
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    if isinstance(given, Context):
        raise TypeError(
            "this is a Context, which is what `prepare` returned: give the request as your program "
            "has it, or `context.request`"
        )
    if not isinstance(given, bytes | Mapping):
        raise TypeError(
            "a request is a mapping with `messages` or `input`, or an HTTP body as bytes, "
            f"not a {type(given).__name__}"
        )
    return given


def checked_messages(given: Any) -> tuple[bytes | Mapping[str, Any], ...]:
    """Messages as they were given; TypeError for what is none, saying what to give."""
    alone = not isinstance(given, Iterable) or isinstance(
        given, Mapping | str | bytes | bytearray | memoryview
    )
    messages = () if alone else tuple(given)
    wrong = [given] if alone else [one for one in messages if not isinstance(one, Mapping | bytes)]
    if wrong:
        raise TypeError(
            "messages are a list, each a mapping of a provider's wire format or its JSON as bytes, "
            f"not a {type(wrong[0]).__name__}"
        )
    return messages


def check_format(given: str | None) -> None:
    """ValueError for the name of a wire format that there is none of."""
    if given is not None and given not in CODECS:
        raise ValueError(f"format {given!r} is none of {', '.join(CODECS)}")


def check_reply(given: Any) -> None:
    """TypeError for what a program never means to give, saying what to do.

    What a provider or a proxy may answer passes, however odd: that must not end a turn.
    """
    if given is None:
        raise TypeError(
            "there is no reply in None: give what the client returned, or the error it raised"
        )
    if isinstance(given, Context):
        raise TypeError(
            "this is the Context of the request: send `context.request`, and give the reply"
        )
    name = type(given).__name__
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()  # Python would warn of it a second time
        raise TypeError(f"this reply has not come yet ({name}): `await` the client's call first")
    if any(hasattr(type(given), method) for method in _STREAMS):
        raise TypeError(
            f"this is a stream ({name}), which is not read yet: loop over "
            "`memory.watch(session, stream)` in its place, or give the list of its events"
        )
    if isinstance(given, bool | int | float):
        raise TypeError(f"a {name} is no reply: {_A_REPLY}")


def holds_reply(given: Any) -> bool:
    """Whether anything of a provider's can be in it: a reply, its error, events of a stream."""
    if isinstance(given, BaseException | Overflow | StreamedReply):
        return True
    if isinstance(given, list | tuple):
        return bool(given)
    return hasattr(given, "model_dump") or may_be_reply(given)


_STREAMS = ("__anext__", "__next__", "__aiter__", "__aenter__", "__enter__")
"""One of these has whatever is read piece by piece; a client's whole reply has none."""
_A_REPLY = (
    "give what the provider's client returned (its object, a mapping with `content`, `choices` or "
    "`output`, or the JSON body as bytes), the list of a stream's events, or the error it raised"
)
