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
from recollect.core.engine.archive import DurableArchive, Location
from recollect.core.engine.guarded_store import GuardedStore
from recollect.core.engine.keeper import SessionKeeper
from recollect.core.engine.ledger import ArchiveState
from recollect.core.engine.loading import load_stored
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
        self.last_request: LastRequest = LastRequest()
        self.archive_state: ArchiveState = ArchiveState(
            copy="missing" if state is None else "current"
        )
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
        self.has_learned = False


async def load_state(
    session: Session, reader: SessionKeeper | None, boundary: Boundary
) -> SessionState:
    """Return the session's stored state. The caller holds the session's lock."""
    if reader is not None:
        stored_state = await load_stored(
            reader.archive, session.id, session.state, session.archive_state, boundary
        )
        if (
            stored_state.path is not session.state.path
        ):  # cached results of the old state are not valid
            session.last_request, session.sent_messages = LastRequest(), len(stored_state.path)
        session.state = stored_state
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
    archived: Location | None = None
    """Where the turn is durable: in the store, in the spool, or nowhere yet. None without `wait`,
    if there was nothing to store, or if the reply answers an earlier request."""
    being_stored: bool = field(default=False, repr=False)
    """True while the reply is being stored."""

    def __str__(self) -> str:
        usage = self.usage
        tokens = (
            f"{usage.input_tokens:,} in, {usage.output_tokens:,} out" if usage else "not reported"
        )
        if self.archived is not None:
            storage_text = (
                f"stored in the {self.archived}" if self.archived != "nowhere" else "not stored yet"
            )
        else:
            storage_text = (
                "being stored" if self.being_stored else "nothing of this reply is stored"
            )
        failure_text = join_lines(self.failures)
        lines = [f"Reply: tokens {tokens}", storage_text, f"due: {self.due}"]
        if self.broken_off:
            lines.insert(1, "the reply ended early: the part received was stored")
        if self.learned_window_tokens is not None:
            lines.append(f"window learned from the provider: {self.learned_window_tokens:,} tokens")
        if self.doubted_limit is not None:
            lines.append(
                f"the limit that the error named was not learned: {self.doubted_limit.value}"
            )
        return (
            "; ".join(lines) + "\n" + (f"Failed: {failure_text}" if failure_text else "No failures")
        )

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


def check_name(name: Any, kind: str) -> str:
    """Return the name of a session or space. Raise TypeError or ValueError for an invalid name."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a {kind} must be a string, not a {type(name).__name__}")
    if not name.strip():
        raise ValueError(f"the name of a {kind} must not be empty: give each {kind} its own")
    return name


def check_session_name(value: Any) -> SessionId:
    """Return the name of a session. Raise TypeError or ValueError for an invalid name."""
    name = check_name(value, "session")
    # Reserved for memory files, which are visible to every session of the space.
    if name.startswith(FILE_SESSIONS):
        raise ValueError(
            f"the name of a session must not begin with {FILE_SESSIONS}, which is reserved for "
            "memory files"
        )
    return name


def require_request(value: Any) -> bytes | Mapping[str, Any]:
    """Return the request unchanged. Raise TypeError for a value that is no request."""
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, bytes | Mapping):
        raise TypeError(
            "a request must be a mapping with `messages` or `input`, or an HTTP body as bytes, "
            f"not a {type(value).__name__} (of a Context, pass `context.request`)"
        )
    return value


def require_messages(value: Any) -> tuple[bytes | Mapping[str, Any], ...]:
    """Return the messages unchanged. Raise TypeError for an invalid message."""
    is_single = value is None or isinstance(value, Mapping | str | bytes | bytearray)
    messages = () if is_single else tuple(value)
    if is_single or not all(isinstance(message, Mapping | bytes) for message in messages):
        raise TypeError(
            "messages must be a list of mappings in a provider's wire format, or of their JSON as "
            "bytes"
        )
    return messages


def check_format(format_name: str | None) -> None:
    if format_name is not None and format_name not in CODECS:
        raise ValueError(f"format must be one of {', '.join(CODECS)}, not {format_name!r}")


def check_reply(reply: Any) -> None:
    """Raise TypeError for values that no provider returns. Malformed replies are accepted, because
    they must not end a turn."""
    type_name = type(reply).__name__
    if inspect.isawaitable(reply):
        if inspect.iscoroutine(reply):
            # Otherwise Python warns about a coroutine that was never awaited.
            reply.close()
        raise TypeError(
            f"this reply has not arrived yet ({type_name}): `await` the client's call first"
        )
    if any(hasattr(type(reply), method) for method in _STREAM_METHODS):
        raise TypeError(
            f"this is a stream ({type_name}) that has not been read: loop over "
            "`memory.watch(session, stream)` instead, or pass the list of its events"
        )
    if reply is None or isinstance(reply, bool | int | float | Context):
        raise TypeError(f"a {type_name} is not a reply: {_REPLY_HINT}")


def can_be_reply(reply: Any) -> bool:
    """Return whether the value can be a provider's reply, an error or a list of stream events."""
    if isinstance(reply, BaseException | Overflow | StreamedReply):
        return True
    if isinstance(reply, list | tuple):
        return bool(reply)
    return hasattr(reply, "model_dump") or may_be_reply(reply)


_STREAM_METHODS = ("__anext__", "__next__", "__aiter__", "__aenter__", "__enter__")
_REPLY_HINT = (
    "pass the client's reply (an object, a mapping with `content`, `choices` or `output`, or the "
    "JSON body as bytes), the list of a stream's events, or the error that the client raised"
)


CHARS_PER_TOKEN: Final = 4
"""For a request that cannot be read, so that no counter can count its tokens."""
MAX_BLOCK_MARKS: Final = 512
"""Not measured; bounds the stored state. Older blocks have left the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The results of a turn's stages."""

    draft: Draft | None = None
    outgoing: Any = field(default=None, repr=False)
    moment: BatchMoment | None = None
    query: str = field(default="", repr=False)
    findings: Recalled | None = field(default=None, repr=False)
    not_durable: bool = False
    compact_first: bool = False
    reported_why_not_compact: bool = False


def report_if_over_limit(
    turn_input: TurnInput, view_tokens: int, boundary: Boundary, *, not_durable: bool
) -> None:
    """Report if the request is over its limit although all stages ran."""
    excess_tokens = (
        turn_input.calibrate(turn_input.fixed_tokens + view_tokens)
        - turn_input.limits.available_tokens
    )
    if excess_tokens > 0:
        cause = Cause.STILL_OVER_NOT_DURABLE if not_durable else Cause.STILL_OVER
        boundary.note("check", "failed", Reason(cause, tokens=excess_tokens))


def build_context(
    turn_input: TurnInput,
    turn_result: TurnResult,
    boundary: Boundary,
    *,
    original_request: Any,
    compaction: CompactionResult | None,
) -> Context:
    """Build the result of `prepare`. If the request could not be read, `as_it_came` is sent."""
    draft = turn_result.draft
    if draft is None:
        size_chars = len(original_request) if isinstance(original_request, bytes) else None
        if size_chars is None:
            size_chars = sum(len(raw) for raw in turn_input.request.messages)
        view = View(rows=(), tokens=size_chars // CHARS_PER_TOKEN)
        report_if_over_limit(turn_input, view.tokens, boundary, not_durable=turn_result.not_durable)
        state = replace(turn_input.state, turn=turn_input.version, requests=turn_input.number)
        edits, incoming_tokens = turn_input.state.edits, turn_input.fixed_tokens + view.tokens
    else:
        view, state = draft.view, _next_state(draft)
        edits, incoming_tokens = draft.edits, draft.incoming_tokens
    shown_names = frozenset(
        name for edit in edits if isinstance(edit, Insert) for name in edit.recalled
    )
    report = Report(
        session=turn_input.session,
        turn=turn_input.number,
        format=turn_input.request.format,
        model=turn_input.request.model,
        window_tokens=turn_input.limits.window_tokens,
        window_source=turn_input.window_source,
        reserve_tokens=turn_input.limits.reserve_tokens,
        limit_tokens=turn_input.limits.available_tokens,
        fixed_tokens=turn_input.fixed_tokens,
        tokens_before=turn_input.calibrate(incoming_tokens),
        tokens_after=turn_input.calibrate(turn_input.fixed_tokens + view.tokens),
        calibration_ratio=turn_input.state.calibration.ratio,
        moment=None if draft is None else turn_result.moment,
        query=turn_result.query,
        lines=tuple(boundary.lines),
        new_edits=edits_only_in(edits, turn_input.state.edits),
        ended_edits=edits_only_in(turn_input.state.edits, edits),
        entries=() if draft is None else draft.entries,
        view=view,
        edits=edits,
        recalled=tuple(
            (passage.segment, passage.score)
            for passage in (() if turn_result.findings is None else turn_result.findings.passages)
            if passage.segment and passage.name in shown_names
        ),
    )
    return Context(
        request=original_request if draft is None else turn_result.outgoing,
        report=report,
        state=state,
        recalled=turn_result.findings and _mark_shown_hits(turn_result.findings, shown_names),
        compaction=compaction,
    )


def _mark_shown_hits(findings: Recalled, shown_names: frozenset[str]) -> Recalled:
    hits = []
    for hit in findings.hits:
        segment, ordinal = hit.passage.segment, hit.passage.ordinal
        names = {passage_name(segment, ordinal), passage_name(segment, None)}
        if hit.text:
            hits.append(replace(hit, shown=not shown_names.isdisjoint(names)))
    return replace(findings, hits=tuple(hits)) if findings.hits else findings


def _next_state(draft: Draft) -> SessionState:
    turn_input = draft.given
    return replace(
        draft.state_after_alignment(turn_input.state),
        turn=turn_input.version,
        requests=turn_input.number,
        edits=draft.edits,
        sent_at=turn_input.now,
        pause_seconds=_pause_seconds(draft),
        sent_estimate_tokens=turn_input.fixed_tokens + draft.view.tokens,
        sent_model=turn_input.request.model,
        sent_format=turn_input.request.format,
        blocks=_next_block_marks(draft),
    )


def _pause_seconds(draft: Draft) -> float | None:
    """Return the seconds since the last request; None if edits changed the request, so that the
    provider's cache does not match."""
    turn_input = draft.given
    last_sent_at, edits = turn_input.state.sent_at, draft.edits
    only_inserts_added = all(
        isinstance(e, Insert) for e in edits_only_in(edits, turn_input.state.edits)
    )
    ended_edits = edits_only_in(turn_input.state.edits, edits)
    return (
        turn_input.now - last_sent_at
        if last_sent_at is not None and only_inserts_added and not ended_edits
        else None
    )


def _next_block_marks(draft: Draft) -> tuple[str, ...]:
    known_marks, earlier_edits = draft.given.state.blocks, draft.given.state.edits
    new_texts = [e.text for e in edits_only_in(draft.edits, earlier_edits) if isinstance(e, Insert)]
    parts = [part for reading in draft.read.new_readings for part in reading.message.parts]
    results = [part for part in parts if isinstance(part, ToolResult)]
    new_texts += [part.text for part in results if part.recalls is not None]
    marks = (block_mark(text, draft.given.secret) for text in new_texts)
    return (*known_marks, *(mark for mark in marks if mark not in known_marks))[-MAX_BLOCK_MARKS:]


def describe_compaction(result: CompactionResult) -> tuple[Outcome, Reason]:
    """Describe a compaction's result for a turn's report."""
    if result.compacted:
        return "done", Reason(
            Cause.COMPACTED,
            why=result.reason,
            before=result.tokens_before,
            after=result.tokens_after,
            seconds=result.seconds,
        )
    if result.convergence == "failed":
        return "failed", Reason(Cause.NOT_COMPACTED, why=result.reason)
    return "nothing", Reason(Cause.IRREDUCIBLE, why=result.reason)


MarkReply: TypeAlias = Callable[[Sequence[Message]], Sequence[str]]
MAX_ANSWER_MARKS: Final = 4_096
"""Not measured; bounds the RAM of long-lived processes."""


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
    reply_by_mark: dict[str, StoredReply] = {}
    for name, piece in (await store.pieces(list(names))).items():
        try:
            body = decode(piece.body)
            reply_by_mark[names[name]] = StoredReply(
                session=str(body["session"]), turn=int(body["turn"])
            )
        except (FormatError, KeyError, TypeError, ValueError):
            continue
    return reply_by_mark


class ToolAnswers:
    """Hashes of recent answers of memory tools, and the messages that each answer quotes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._marks: OrderedDict[str, tuple[MessageId, ...]] = OrderedDict()
        self._unstored_marks: dict[str, tuple[MessageId, ...]] = {}

    @property
    def marks(self) -> Mapping[str, tuple[MessageId, ...]]:
        return dict(self._marks)

    def add(self, text: str, quotes: Sequence[MessageId]) -> None:
        mark, message_ids = block_mark(text, self._secret), tuple(dict.fromkeys(quotes))
        if message_ids and mark not in self._marks:
            self._unstored_marks[mark] = message_ids
        self._remember(mark, message_ids)

    async def store_marks(self, archive: DurableArchive, *, now: float) -> None:
        """Store new hashes, so that other processes find them."""
        unstored_marks, self._unstored_marks = self._unstored_marks, {}
        if unstored_marks:
            # the pieces have no `about`, so forgetting a quoted message does not delete the hash
            pieces = [
                _piece("told", mark, {"quotes": list(ids)}) for mark, ids in unstored_marks.items()
            ]
            await archive.write(Batch(at=now, pieces=tuple(pieces)))

    async def find_marks(
        self, request: Request, last_request: LastRequest, store: GuardedStore
    ) -> None:
        """Read which messages the request's new tool answers of other processes quote."""
        codec = CODECS[request.format]
        new_marks = answers_in(request.messages, codec, self._secret, last_request)
        names = {_name("told", mark): mark for mark in new_marks if mark not in self._marks}
        if not names:
            return
        for name, piece in (await store.pieces(list(names))).items():
            self._remember(names[name], _quotes(piece))

    def _remember(self, mark: str, quotes: tuple[MessageId, ...]) -> None:
        self._marks[mark] = quotes
        if len(self._marks) > MAX_ANSWER_MARKS:
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
