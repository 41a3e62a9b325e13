"""What a session's requests held, and what became of its messages: read from the ledger.

Owns the tools `why` and `context_status`. They read what was recorded when a request was prepared,
by whichever process that was: nothing is prepared again, nothing is written. Answers are framed and
marked as those of the memory tools are. What was forgotten, has expired or was masked stands so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from recollect.boundary import Failure, attempted
from recollect.engine.ledger import NotRebuilt, Rebuilt, rebuild_request
from recollect.engine.lookup import MemoryLookup
from recollect.errors import FormatError, RecollectError
from recollect.formats.json_text import decode, strings_of
from recollect.formats.stored_records import RecordedCompaction, join_state, read_record
from recollect.inspect.sessions import session_meant, stored_sessions
from recollect.mcp.definitions import PAST_KINDS, StatusArguments, WhyArguments
from recollect.tools import MemoryAnswer, MemoryTools
from recollect.tools.answers import AnswerLines, framed, indented, message_line, plain
from recollect.tools.arguments import Arguments, BadArguments, read_arguments
from recollect.tools.handler import ANSWER_TOKENS, LEAST_TOKENS
from recollect.turn.inject import day_and_minute
from recollect.values.history import newest_cut
from recollect.values.report import AGENTS_OWN_WINDOW_TOKENS

if TYPE_CHECKING:
    from recollect.engine.engine import Engine
    from recollect.ports import Store
    from recollect.values.batch import RebuiltTurn
    from recollect.values.message import MessageId
    from recollect.values.segment import StoredSegment

_SAID_CHARS: Final = 100
_MOST_MATCHES: Final = 5
_MOST_LOOKED_AT: Final = 4_000
"""Messages of a session that are looked through for words, the newest first."""
_MOST_TURNS_BACK: Final = 300
Fates: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By entry key, what was recorded of a message that did not go out as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request of the ledger, with what was recorded of it."""

    session: str
    turn: RebuiltTurn
    rebuilt: Rebuilt
    report: Mapping[str, Any] = field(repr=False)
    fates: Fates = field(repr=False)
    rows: Sequence[tuple[MessageId, ...]] = field(repr=False)
    """For each of its messages whose words stand in it, its own identity first."""
    summaries: Mapping[int, frozenset[MessageId]] = field(repr=False)
    """The compactions whose summary stands in it, with the messages that it is shown for."""

    def quoted_by(self, place: int) -> Sequence[MessageId]:
        """Whose words stand in the message at this place."""
        return self.rows[place] if place < len(self.rows) else [i for row in self.rows for i in row]


class PastRequests:
    """Answers what is asked about requests that were sent."""

    def __init__(self, engine: Engine, session: str | None) -> None:
        """With a `session` only of this one, unless `recall.scope` makes all one memory."""
        self._engine = engine
        self._lookup = MemoryLookup(engine, session)
        self._tools = MemoryTools(engine, session=session)
        self._own = session
        self._only = None if engine.settings.recall.scope == "space" else session

    async def call(self, name: str, arguments: Mapping[str, Any] | None) -> MemoryAnswer:
        """Carry a call out; never raises for what a model sends, nor for a store that is away."""
        kind = PAST_KINDS[name]
        read = read_arguments(kind, arguments)
        if isinstance(read, BadArguments):
            return MemoryAnswer(text=read.told(kind), is_error=True)
        done = await attempted(
            self._why(read) if isinstance(read, WhyArguments) else self._status(read)
        )
        if not isinstance(done, Failure):
            return await self._told(done)
        if issubclass(done.error, RecollectError):
            return await self._refusal(f"{name}: {done.said}")
        return await self._refusal(f"{name} failed ({done.error.__name__}); go on without it.")

    # why

    async def _why(self, asked: WhyArguments) -> AnswerLines:
        session = await self._meant(asked.session)
        request = await self._request(session, asked.turn)
        answer = self._answer(asked.max_tokens)
        answer.head(_request_line(request))
        if not asked.message:
            self._whole(request, answer)
            return answer
        found = await self._messages(session, asked.message)
        if not found:
            raise RecollectError(
                "no message of that session has this id or holds these words; memory_search "
                "finds messages of others."
            )
        for stored in found:
            said = indented(plain(stored.segment.text)[:_SAID_CHARS])
            became = _became(request, stored)
            answer.add(
                [message_line(stored, session), said, f"→ {became}"], [stored.segment.message_id]
            )
        return answer

    def _whole(self, request: _Request, answer: AnswerLines) -> None:
        for line in request.report.get("lines") or ():
            if line.get("outcome") in ("done", "failed", "late"):
                told = f"{line.get('stage')}, {line.get('outcome')}: {line.get('said')}"
                answer.add([indented(plain(told) if len(told) < 80 else told)], [])
        for number, covered in request.summaries.items():
            answer.head(f"{len(covered)} messages are shown as the summary of compaction {number}")
        gone = [one for one in request.fates.values() if one.get("place") is not None]
        if gone:
            answer.head(f"{len(gone)} messages did not go out as they came:")
        for one in gone:
            number = int(one["place"]) + 1
            answer.add([indented(f"{number} {one.get('role')}: {one['fate']}: {one['said']}")], [])
        messages = _messages_of(decode(request.rebuilt.body))
        answer.head(f"It held {len(messages)} messages:")
        # the newest matter most; what does not fit is counted
        for at in reversed(range(len(messages))):
            who, said = messages[at]
            answer.add([indented(f"{at + 1} {who}: {plain(said)}")], request.quoted_by(at))
        if answer.left_out:
            answer.head(
                f"({answer.left_out} more lines did not fit; `recollect replay` has it all.)"
            )

    async def _messages(self, session: str, wanted: str) -> Sequence[StoredSegment]:
        """The messages of a session that are meant: by id, or by words, the newest first."""
        stored = await self._tools.find_message(wanted)
        if stored is not None:
            return [stored] if stored.segment.session == session else []
        folded = wanted.casefold()

        async def look(store: Store) -> list[StoredSegment]:
            found: list[StoredSegment] = []
            below = looked = 0
            while looked < _MOST_LOOKED_AT and len(found) < _MOST_MATCHES:
                page = await store.page(after=below, limit=200, session=session, descending=True)
                if not page:
                    break
                below, looked = page[-1].sequence, looked + len(page)
                found += [one for one in page if folded in one.segment.text.casefold()]
            return found[:_MOST_MATCHES]

        return await self._engine._look_up(look)

    # context_status

    async def _status(self, asked: Arguments) -> AnswerLines:
        assert isinstance(asked, StatusArguments)
        stats = await self._engine._look_up(lambda store: store.stats())
        answer = self._answer(0)
        answer.head(
            f"memory {plain(self._engine.space)}: {stats.sessions:,} sessions, "
            f"{stats.segments:,} messages, {stats.facts:,} facts"
        )
        session = await attempted(self._meant(asked.session))
        if isinstance(session, Failure):
            if asked.session:
                raise RecollectError(session.said)
            answer.head(session.said)
            return answer
        request = await attempted(self._request(session, 0))
        if isinstance(request, Failure):
            answer.head(f"last request: {request.said}")
        else:
            self._sizes(request, answer)
        await self._kept_of(session, answer)
        is_agents = not isinstance(request, Failure) and _is_agents_own(request)
        await self._compactions(session, answer, is_agents=is_agents)
        return answer

    def _sizes(self, request: _Request, answer: AnswerLines) -> None:
        report, body = request.report, decode(request.rebuilt.body)
        answer.head(_request_line(request))
        window = int(report.get("window_tokens") or 0)
        sent = int(report.get("tokens_after") or 0)
        if _is_agents_own(request):
            answer.head(
                f" {sent:,} tokens as far as the agent's transcript tells; its window, and what it "
                "compacts, are its own and not known here"
            )
        elif window:
            answer.head(
                f" {sent:,} tokens, {sent / window:.0%} of a window of {window:,}; "
                f"{int(report.get('limit_tokens') or 0):,} fit beside the reply"
            )
        if isinstance(body, dict):
            for name in ("system", "instructions", "tools"):
                if body.get(name):
                    text = "\n".join(strings_of(body[name], _SHOWN))
                    answer.head(f" {name}: about {self._lookup.count_tokens(text):,} tokens")
        messages = _messages_of(body)
        count = self._lookup.count_tokens("\n".join(said for _, said in messages))
        answer.head(f" {len(messages)} messages: about {count:,} tokens")
        for number, covered in request.summaries.items():
            answer.head(f" {len(covered)} messages shown as the summary of compaction {number}")
        left = [one for one in request.fates.values() if one["fate"] == "left out"]
        if left:
            answer.head(f" {len(left)} messages left out; `why` tells which")
        if recalled := report.get("recalled"):
            answer.head(f" {len(recalled)} passages were recalled for it")

    async def _kept_of(self, session: str, answer: AnswerLines) -> None:
        for one in await self._engine._look_up(lambda store: store.sessions()):
            if one.session == session:
                day, minute = day_and_minute(one.last_said_at or 0.0)
                answer.head(
                    f"archived of it: {one.segments:,} messages, the last of {day} {minute}"
                )

    async def _shortened(self, session: str, answer: AnswerLines) -> None:
        """When an agent's conversation was last much shorter than at the request before."""

        async def look(store: Store) -> RebuiltTurn | None:
            behind: RebuiltTurn | None = None
            for number in reversed((await store.turns(session))[-_MOST_TURNS_BACK:]):
                turn = await store.turn(session, number)
                if turn is None:
                    break
                if behind is not None and 2 * len(behind.rows) < len(turn.rows):
                    return behind
                behind = turn
            return None

        turn = await self._engine._look_up(look)
        if turn is None:
            answer.head("compactions: the agent's requests show none; what it does is its own")
            return
        day, minute = day_and_minute(turn.record.at)
        answer.head(
            f"compactions: the agent's last stands before request {turn.record.number}, {day} "
            f"{minute}: the conversation was less than half as long from there on"
        )

    async def _compactions(self, session: str, answer: AnswerLines, *, is_agents: bool) -> None:
        """What was compacted; of a session whose agent does that itself, what its requests show."""
        if is_agents:
            await self._shortened(session, answer)
        kept = await self._engine._look_up(lambda store: store.compactions(session))
        state = await self._engine._look_up(lambda store: store.session(session))
        standing = 0
        if state is not None:
            try:
                cut = newest_cut(join_state(state.state, state.path, state.ids).edits)
                standing = 0 if cut is None else cut.number
            except FormatError:
                answer.head("what is remembered of the session cannot be read")
        stands = f"; number {standing} stands" if standing else ""
        if kept or not is_agents:
            answer.head(f"compactions: {len(kept)} recorded{stands}")

    # of both

    async def _meant(self, wanted: str) -> str:
        """The session that is meant: named, the server's own, or the newest there is."""
        if self._only is not None:
            if wanted not in ("", self._only):
                raise RecollectError("only this session's own requests can be asked for here.")
            return self._only
        named = wanted or self._own
        lines = await self._engine._look_up(stored_sessions)
        if named:
            return session_meant(lines, named, listing="resources/list").session_id
        if not lines:
            raise RecollectError("no session is in this memory yet.")
        return lines[0].session_id

    async def _request(self, session: str, number: int) -> _Request:
        async def read(store: Store) -> _Request | NotRebuilt:
            kept = await store.turns(session)
            if not kept:
                return NotRebuilt(reason="no request of this session is in the ledger.")
            wanted = number or kept[-1]
            rebuilt = await rebuild_request(store, session, wanted)
            if isinstance(rebuilt, NotRebuilt):
                return rebuilt
            turn = await store.turn(session, wanted)
            if turn is None:
                return NotRebuilt(reason="it was just removed.")
            pieces = await store.pieces(list(dict.fromkeys(turn.rows)))
            rows = [pieces[row].about if row in pieces else () for row in turn.rows]
            return _Request(
                session=session,
                turn=turn,
                rebuilt=rebuilt,
                report=_object(rebuilt.report),
                fates=await _standing_fates(
                    store, session, rebuilt, [n for n in kept if n <= wanted]
                ),
                rows=rows,
                summaries=await _standing_summaries(store, session, wanted, rows),
            )

        found = await self._engine._look_up(read)
        if isinstance(found, NotRebuilt):
            raise RecollectError(found.reason)
        return found

    def _answer(self, wanted_tokens: int) -> AnswerLines:
        most = ANSWER_TOKENS
        size = max(LEAST_TOKENS, min(wanted_tokens, most)) if wanted_tokens > 0 else most
        return AnswerLines(size, self._lookup.count_tokens)

    async def _told(self, answer: AnswerLines, *, is_error: bool = False) -> MemoryAnswer:
        text = self._lookup.tell(framed(answer.lines), answer.quotes)
        await self._lookup.keep_told()
        return MemoryAnswer(text=text, is_error=is_error)

    async def _refusal(self, text: str) -> MemoryAnswer:
        answer = self._answer(0)
        answer.head(indented(text).lstrip())
        return await self._told(answer, is_error=True)


async def _standing_fates(
    store: Store, session: str, rebuilt: Rebuilt, turns: Sequence[int]
) -> Fates:
    """What had become of messages by a turn. Earlier versions recorded it only with turns that
    changed it: the last of those holds what stood then."""
    if rebuilt.record.outcomes:
        return _by_entry(rebuilt.report)
    for number in reversed(turns[-_MOST_TURNS_BACK:]):
        turn = await store.turn(session, number)
        if turn is None or turn.record.edits is None or turn.record.report is None:
            continue
        pieces = await store.pieces([turn.record.report])
        piece = pieces.get(turn.record.report)
        return _by_entry(piece.body if piece else None)
    return {}


def _by_entry(report: bytes | None) -> Fates:
    fates = _object(report).get("fates") or ()
    return {str(one["entry"]): one for one in fates if one.get("entry")}


async def _standing_summaries(
    store: Store, session: str, turn: int, rows: Sequence[tuple[MessageId, ...]]
) -> Mapping[int, frozenset[MessageId]]:
    """The compaction whose summary a request shows; fates are recorded when a turn changes them,
    and a compaction is made between two turns."""
    shown = {id_ for row in rows for id_ in row}
    for record in reversed(await store.compactions(session)):
        made = _readable_record(record.body)
        covered = frozenset(record.about)
        if made is not None and made.turn <= turn and covered and covered <= shown:
            return {record.number: covered}
    return {}


def _readable_record(body: bytes) -> RecordedCompaction | None:
    """A compaction's record; None where it cannot be read."""
    try:
        return read_record(body)
    except FormatError:
        return None


def _became(request: _Request, stored: StoredSegment) -> str:
    """What became of a message in a request."""
    id_, fate = stored.segment.message_id, request.fates.get(stored.segment.key)
    covering = [covered for covered in request.summaries.values() if id_ in covered]
    told = [at for at, about in enumerate(request.rows, 1) if id_ in about]
    # the row of a summary that stands for it begins with it, too, and is not it
    own = [
        at
        for at in told
        if request.rows[at - 1][0] == id_
        and not any(covered.issubset(request.rows[at - 1]) for covered in covering)
    ]
    if own:
        changed = f"; {fate['fate']}: {fate['said']}" if fate else ""
        return f"it went out; it stands in message {own[0]} of the request{changed}"
    for number, covered in request.summaries.items():
        if id_ in covered:
            return f"summarised: message {told[0]} is the summary of compaction {number}"
    if fate is not None:
        return f"{fate['fate']}: {fate['said']}"
    if told:
        return f"it did not go out itself; message {told[0]} of the request quotes it"
    if stored.segment.said_at > request.rebuilt.record.at:
        return "it was said after this request"
    return "this request came without it; memory_search finds it"


def _is_agents_own(request: _Request) -> bool:
    """Whether the window of a request was its agent's, of which hooks told."""
    return int(request.report.get("window_tokens") or 0) >= AGENTS_OWN_WINDOW_TOKENS


def _request_line(request: _Request) -> str:
    record, report = request.rebuilt.record, request.report
    day, minute = day_and_minute(record.at)
    told = f"Request {record.number} of session {plain(request.session)}, {day} {minute}"
    told += f", {plain(record.model or 'no model named')}"
    before, after = report.get("tokens_before"), report.get("tokens_after")
    if isinstance(before, int) and isinstance(after, int):
        told += f": {after:,} tokens" + (f" ({before:,} came in)" if before != after else "")
    if not request.rebuilt.exact:
        told += "; parts of it are masked or no longer kept"
    return told


def _object(raw: bytes | None) -> Mapping[str, Any]:
    if raw is None:
        return {}
    try:
        value = decode(raw)
    except FormatError:
        return {}
    return value if isinstance(value, dict) else {}


def _messages_of(body: Any) -> list[tuple[str, str]]:
    """Who says what in a request, message by message."""
    if not isinstance(body, dict):
        return []
    messages = body.get("messages") or body.get("input") or []
    if not isinstance(messages, list):
        return [("user", str(messages))]
    found: list[tuple[str, str]] = []
    for message in messages:
        fields = message if isinstance(message, dict) else {}
        who = str(fields.get("role") or fields.get("type") or "?")
        found.append((who, " ".join(strings_of(fields, _SHOWN))))
    return found


_SHOWN: Final = (
    *("text", "content", "tool_calls", "function", "name", "description"),
    *("input", "input_schema", "parameters", "arguments", "output", "thinking"),
)
