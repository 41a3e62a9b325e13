"""A session's handle, the results of turns and replies, checks of arguments, and marks (keyed
hashes). `ToolAnswers` stores which messages each answer of a memory tool quotes. When one of these
messages is forgotten, every process can then delete its copies of the answer."""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from recollect.core.boundary import Boundary
from recollect.core.engine.archive import DurableArchive, Where
from recollect.core.engine.guarded_store import GuardedStore
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.ledger import ArchiveState
from recollect.core.formats.codec import CODECS
from recollect.core.formats.json_text import decode, encode
from recollect.core.formats.replies import StreamedReply, may_be_reply
from recollect.core.ports import Store
from recollect.core.rules.identity import block_mark
from recollect.core.turn.align import LastRequest, answers_in
from recollect.core.turn.draft import Draft, TurnInput
from recollect.core.values.batch import Batch, LedgerPiece, PieceHash, PieceKind
from recollect.core.values.compaction import CompactionResult, Due
from recollect.core.values.edit import Edit, Insert, edits_only_in
from recollect.core.values.history import SessionId, SessionState, View
from recollect.core.values.message import Message, MessageId, ToolResult
from recollect.core.values.model import LimitDoubt, Overflow, Request, Usage
from recollect.core.values.reason import NOT_RUN, Cause, Reason
from recollect.core.values.recall import FILE_SESSIONS, Recalled, passage_name
from recollect.core.values.report import BatchMoment, Outcome, Report, StageLine, join_lines
from recollect.errors import FormatError
from recollect.system.forks import OwnProcess


class Session:
    """A handle of a conversation, which holds the session's state between turns."""

    def __init__(self, id: SessionId, state: SessionState | None = None) -> None:  # noqa: A002
        self.id = id
        self.process: OwnProcess = OwnProcess()
        self.state: SessionState = state or SessionState()
        self.lock: asyncio.Lock = asyncio.Lock()
        self.remembered: LastRequest = LastRequest()
        self.keeping: ArchiveState = ArchiveState(copy="missing" if state is None else "current")
        self.sent_messages: int = len(self.state.path)
        """Number of messages in the last request. Its reply follows them in the history."""
        self.last_draft: Draft | None = None
        """The last turn's draft, from which a compaction between turns starts."""
        self.compactions: list[asyncio.Task[CompactionResult]] = []
        self.flush: asyncio.Task[CompactionResult] | None = None
        self.compacting: asyncio.Task[CompactionResult] | None = None
        self.compacted_meanwhile: CompactionResult | None = None
        """Result of a compaction in the background, for the next report."""
        self.compaction_failure: Reason | None = None
        """Why the last compaction failed, for the next observation."""
        self.message_provider: str | None = None
        self.observation: Observation | None = None
        self.learned = False


async def load(session: Session, reader: SessionKeeper | None, boundary: Boundary) -> SessionState:
    """Return the session's stored state. The caller holds the session's lock."""
    if reader is not None:
        known = await reader.load(session.id, session.state, session.keeping, boundary)
        if known.path is not session.state.path:  # cached results of the old state are not valid
            session.remembered, session.sent_messages = LastRequest(), len(known.path)
        session.state = known
    return session.state


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The result of `prepare`: the request to send, its report, and the session's next state."""

    request: Any = field(repr=False)
    """The request to send: bytes, or a dictionary of arguments for a client, as you passed it."""
    report: Report
    """What was done to the request, and why; `print(report)` shows it in three lines."""
    state: SessionState
    """The session's state after this turn. Most programs do not need it."""
    recalled: Recalled | None = field(default=None, repr=False)
    """The gate's decision, and every hit with its score; None if nothing was searched."""
    compaction: CompactionResult | None = field(default=None, repr=False)
    """The compaction that this turn waited for; None if there was none."""

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The session's edits."""
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
    """The result of `observe`: what Recollect learned from a reply."""

    usage: Usage | None
    """Tokens of the request and the reply, as the provider reported them; None if it reported
    none."""
    calibration_ratio: float
    """Reported tokens divided by estimated tokens, learned from this session's replies."""
    learned_window_tokens: int | None
    """Window size that an overflow error named; None if there was no such error."""
    doubted_limit: LimitDoubt | None = None
    """Why Recollect does not use the limit that an error named."""
    failures: tuple[StageLine, ...] = ()
    """Failures and delays in reading the reply, storing messages, jobs and compactions."""
    due: Due = "nothing"
    """The next step: "flush" (the agent should write notes), "compaction", or "nothing"."""
    due_reason: Reason = NOT_RUN
    """Reason for `due`; `str` gives a sentence."""
    flush_first: bool = False
    """True if a compaction is due, and the agent has written no notes since the last one."""
    broken_off: bool = False
    """True if a streamed reply ended early. The received part was stored."""
    archived: Where | None = None
    """Where the turn is durable: in the store, in the spool, or nowhere yet. None without `wait`,
    if there was nothing to store, or if the reply answers an earlier request."""
    being_stored: bool = field(default=False, repr=False)
    """True while the reply is being stored."""

    def __str__(self) -> str:
        used = self.usage
        tokens = f"{used.input_tokens:,} in, {used.output_tokens:,} out" if used else "not reported"
        if self.archived is not None:
            kept = (
                f"stored in the {self.archived}" if self.archived != "nowhere" else "not stored yet"
            )
        else:
            kept = "being stored" if self.being_stored else "nothing of this reply is stored"
        failed = join_lines(self.failures)
        lines = [f"Reply: tokens {tokens}", kept, f"due: {self.due}"]
        if self.broken_off:
            lines.insert(1, "the reply ended early: the part received was stored")
        if self.learned_window_tokens is not None:
            lines.append(f"window learned from the provider: {self.learned_window_tokens:,} tokens")
        if self.doubted_limit is not None:
            lines.append(
                f"the limit that the error named was not learned: {self.doubted_limit.value}"
            )
        return "; ".join(lines) + "\n" + (f"Failed: {failed}" if failed else "No failures")

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
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


def check_name(given: Any, what: str) -> str:
    """Return the name of a session or space. Raise TypeError or ValueError for an invalid name."""
    if not isinstance(given, str):
        raise TypeError(f"the name of a {what} must be a string, not a {type(given).__name__}")
    if not given.strip():
        raise ValueError(f"the name of a {what} must not be empty: give each {what} its own")
    return given


def check_session_name(given: Any) -> SessionId:
    """Return the name of a session. Raise TypeError or ValueError for an invalid name."""
    name = check_name(given, "session")
    # Reserved for memory files, which are visible to every session of the space.
    if name.startswith(FILE_SESSIONS):
        raise ValueError(
            f"the name of a session must not begin with {FILE_SESSIONS}, which is reserved for "
            "memory files"
        )
    return name


def checked_request(given: Any) -> bytes | Mapping[str, Any]:
    """Return the request unchanged. Raise TypeError for a value that is no request."""
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    if not isinstance(given, bytes | Mapping):
        raise TypeError(
            "a request must be a mapping with `messages` or `input`, or an HTTP body as bytes, "
            f"not a {type(given).__name__} (of a Context, pass `context.request`)"
        )
    return given


def checked_messages(given: Any) -> tuple[bytes | Mapping[str, Any], ...]:
    """Return the messages unchanged. Raise TypeError for an invalid message."""
    alone = given is None or isinstance(given, Mapping | str | bytes | bytearray)
    messages = () if alone else tuple(given)
    if alone or not all(isinstance(one, Mapping | bytes) for one in messages):
        raise TypeError(
            "messages must be a list of mappings in a provider's wire format, or of their JSON as "
            "bytes"
        )
    return messages


def check_format(given: str | None) -> None:
    if given is not None and given not in CODECS:
        raise ValueError(f"format must be one of {', '.join(CODECS)}, not {given!r}")


def check_reply(given: Any) -> None:
    """Raise TypeError for values that no provider returns. Malformed replies are accepted, because
    they must not end a turn."""
    name = type(given).__name__
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            # Otherwise Python warns about a coroutine that was never awaited.
            given.close()
        raise TypeError(f"this reply has not arrived yet ({name}): `await` the client's call first")
    if any(hasattr(type(given), method) for method in _STREAMS):
        raise TypeError(
            f"this is a stream ({name}) that has not been read: loop over `memory.watch(session, "
            "stream)` instead, or pass the list of its events"
        )
    if given is None or isinstance(given, bool | int | float | Context):
        raise TypeError(f"a {name} is not a reply: {_A_REPLY}")


def holds_reply(given: Any) -> bool:
    """Return whether the value can be a provider's reply, an error or a list of stream events."""
    if isinstance(given, BaseException | Overflow | StreamedReply):
        return True
    if isinstance(given, list | tuple):
        return bool(given)
    return hasattr(given, "model_dump") or may_be_reply(given)


_STREAMS = ("__anext__", "__next__", "__aiter__", "__aenter__", "__enter__")
_A_REPLY = (
    "pass the client's reply (an object, a mapping with `content`, `choices` or `output`, or the "
    "JSON body as bytes), the list of a stream's events, or the error that the client raised"
)


CHARS_A_TOKEN: Final = 4
MOST_BLOCKS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The results of a turn's stages."""

    draft: Draft | None = None
    outgoing: Any = field(default=None, repr=False)
    moment: BatchMoment | None = None
    query: str = field(default="", repr=False)
    recalled: Recalled | None = field(default=None, repr=False)
    not_durable: bool = False
    compact_first: bool = False
    told_why_not_compact: bool = False


def check_size(
    given: TurnInput, view_tokens: int, boundary: Boundary, *, not_durable: bool
) -> None:
    """Report if the request is over its limit although all stages ran."""
    over = given.calibrate(given.fixed_tokens + view_tokens) - given.limits.available_tokens
    if over > 0:
        cause = Cause.STILL_OVER_NOT_DURABLE if not_durable else Cause.STILL_OVER
        boundary.note("check", "failed", Reason(cause, tokens=over))


def context_of(
    given: TurnInput,
    done: TurnResult,
    boundary: Boundary,
    *,
    as_it_came: Any,
    compaction: CompactionResult | None,
) -> Context:
    """Build the result of `prepare`. If the request could not be read, `as_it_came` is sent."""
    draft = done.draft
    if draft is None:
        size_chars = len(as_it_came) if isinstance(as_it_came, bytes) else None
        if size_chars is None:
            size_chars = sum(len(raw) for raw in given.request.messages)
        view = View(rows=(), tokens=size_chars // CHARS_A_TOKEN)
        check_size(given, view.tokens, boundary, not_durable=done.not_durable)
        state = replace(given.state, turn=given.version, requests=given.number)
        edits, incoming = given.state.edits, given.fixed_tokens + view.tokens
    else:
        view, state = draft.view, _next_state(draft)
        edits, incoming = draft.edits, draft.incoming_tokens
    shown = frozenset(name for edit in edits if isinstance(edit, Insert) for name in edit.recalled)
    report = Report(
        session=given.session,
        turn=given.number,
        format=given.request.format,
        model=given.request.model,
        window_tokens=given.limits.window_tokens,
        window_source=given.window_source,
        reserve_tokens=given.limits.reserve_tokens,
        limit_tokens=given.limits.available_tokens,
        fixed_tokens=given.fixed_tokens,
        tokens_before=given.calibrate(incoming),
        tokens_after=given.calibrate(given.fixed_tokens + view.tokens),
        calibration_ratio=given.state.calibration.ratio,
        moment=None if draft is None else done.moment,
        query=done.query,
        lines=tuple(boundary.lines),
        new_edits=edits_only_in(edits, given.state.edits),
        ended_edits=edits_only_in(given.state.edits, edits),
        entries=() if draft is None else draft.entries,
        view=view,
        edits=edits,
        recalled=tuple(
            (passage.segment, passage.score)
            for passage in (() if done.recalled is None else done.recalled.passages)
            if passage.segment and passage.name in shown
        ),
    )
    return Context(
        request=as_it_came if draft is None else done.outgoing,
        report=report,
        state=state,
        recalled=done.recalled and _with_shown(done.recalled, shown),
        compaction=compaction,
    )


def _with_shown(recalled: Recalled, shown: frozenset[str]) -> Recalled:
    hits = []
    for hit in recalled.hits:
        segment, ordinal = hit.passage.segment, hit.passage.ordinal
        names = {passage_name(segment, ordinal), passage_name(segment, None)}
        if hit.text:
            hits.append(replace(hit, shown=not shown.isdisjoint(names)))
    return replace(recalled, hits=tuple(hits)) if recalled.hits else recalled


def _next_state(draft: Draft) -> SessionState:
    given = draft.given
    return replace(
        draft.state_after_alignment(given.state),
        turn=given.version,
        requests=given.number,
        edits=draft.edits,
        sent_at=given.now,
        pause_seconds=_pause_seconds(draft),
        sent_estimate_tokens=given.fixed_tokens + draft.view.tokens,
        sent_model=given.request.model,
        sent_format=given.request.format,
        blocks=_marked_blocks(draft),
    )


def _pause_seconds(draft: Draft) -> float | None:
    """Return the seconds since the last request; None if edits changed the request, so that the
    provider's cache does not match."""
    given = draft.given
    before, edits = given.state.sent_at, draft.edits
    same = all(isinstance(e, Insert) for e in edits_only_in(edits, given.state.edits))
    gone = edits_only_in(given.state.edits, edits)
    return given.now - before if before is not None and same and not gone else None


def _marked_blocks(draft: Draft) -> tuple[str, ...]:
    known, before = draft.given.state.blocks, draft.given.state.edits
    new = [e.text for e in edits_only_in(draft.edits, before) if isinstance(e, Insert)]
    parts = [part for reading in draft.read.new_readings for part in reading.message.parts]
    results = [part for part in parts if isinstance(part, ToolResult)]
    new += [part.text for part in results if part.recalls is not None]
    marks = (block_mark(text, draft.given.secret) for text in new)
    return (*known, *(mark for mark in marks if mark not in known))[-MOST_BLOCKS:]


def compaction_line(done: CompactionResult) -> tuple[Outcome, Reason]:
    """Describe a compaction's result for a turn's report."""
    if done.compacted:
        return "done", Reason(
            Cause.COMPACTED,
            why=done.reason,
            before=done.tokens_before,
            after=done.tokens_after,
            seconds=done.seconds,
        )
    if done.convergence == "failed":
        return "failed", Reason(Cause.NOT_COMPACTED, why=done.reason)
    return "nothing", Reason(Cause.IRREDUCIBLE, why=done.reason)


MarkReply: TypeAlias = Callable[[Sequence[Message]], Sequence[str]]
MOST_ANSWERS: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReply:
    """The session that received a reply, and the turn that the reply answered."""

    session: SessionId
    turn: int


def reply_pieces(marks: Sequence[str], reply: StoredReply) -> tuple[LedgerPiece, ...]:
    """Make the ledger pieces with which `find_sessions` finds the session of a reply."""
    body = {"session": reply.session, "turn": reply.turn}
    return tuple(_piece("heard", mark, body) for mark in marks)


async def find_sessions(store: Store, marks: Sequence[str]) -> Mapping[str, StoredReply]:
    """Return the sessions stored under these marks. Unknown marks are ignored."""
    names = {_name("heard", mark): mark for mark in marks}
    found: dict[str, StoredReply] = {}
    for name, piece in (await store.pieces(list(names))).items():
        try:
            body = decode(piece.body)
            found[names[name]] = StoredReply(session=str(body["session"]), turn=int(body["turn"]))
        except (FormatError, KeyError, TypeError, ValueError):
            continue
    return found


class ToolAnswers:
    """Hashes of recent answers of memory tools, and the messages that each answer quotes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._marks: OrderedDict[str, tuple[MessageId, ...]] = OrderedDict()
        self._unkept: dict[str, tuple[MessageId, ...]] = {}

    @property
    def marks(self) -> Mapping[str, tuple[MessageId, ...]]:
        return dict(self._marks)

    def add(self, text: str, quotes: Sequence[MessageId]) -> None:
        mark, quoted = block_mark(text, self._secret), tuple(dict.fromkeys(quotes))
        if quoted and mark not in self._marks:
            self._unkept[mark] = quoted
        self._remember(mark, quoted)

    async def keep(self, archive: DurableArchive, *, now: float) -> None:
        """Store new hashes, so that other processes find them."""
        unkept, self._unkept = self._unkept, {}
        if unkept:
            # the pieces have no `about`, so forgetting a quoted message does not delete the hash
            pieces = [_piece("told", mark, {"quotes": list(ids)}) for mark, ids in unkept.items()]
            await archive.write(Batch(at=now, pieces=tuple(pieces)))

    async def look_for(
        self, request: Request, remembered: LastRequest, store: GuardedStore
    ) -> None:
        """Read which messages the request's new tool answers of other processes quote."""
        codec = CODECS[request.format]
        found = answers_in(request.messages, codec, self._secret, remembered)
        names = {_name("told", mark): mark for mark in found if mark not in self._marks}
        if not names:
            return
        for name, piece in (await store.pieces(list(names))).items():
            self._remember(names[name], _quotes(piece))

    def _remember(self, mark: str, quotes: tuple[MessageId, ...]) -> None:
        self._marks[mark] = quotes
        if len(self._marks) > MOST_ANSWERS:
            self._marks.popitem(last=False)


def _name(kind: PieceKind, mark: str) -> PieceHash:
    return PieceHash(blake2b(mark.encode(), digest_size=16, person=kind.encode()).hexdigest())


def _piece(kind: PieceKind, mark: str, body: Mapping[str, Any]) -> LedgerPiece:
    return LedgerPiece(hash=_name(kind, mark), kind=kind, body=encode(body))


def _quotes(piece: LedgerPiece) -> tuple[MessageId, ...]:
    try:
        return tuple(MessageId(i) for i in decode(piece.body)["quotes"] if isinstance(i, str))
    except (FormatError, KeyError, TypeError):
        return ()
