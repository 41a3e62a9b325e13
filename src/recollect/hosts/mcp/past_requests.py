"""What a session's requests held, and what became of its messages: read from the ledger.

Owns the tools `why` and `context_status`. They read what was recorded when a request was prepared,
by whichever process that was: nothing is prepared again, nothing is written. Answers are framed and
marked as those of the memory tools are. What was forgotten, has expired or was masked stands so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from recollect.core.boundary import Failure, attempted
from recollect.core.engine.ledger import NotRebuilt
from recollect.core.engine.lookup import MemoryLookup
from recollect.core.formats.json_text import when
from recollect.core.values.message import MessageId
from recollect.core.values.reason import joined_reasons
from recollect.core.values.report import AGENTS_OWN_WINDOW_TOKENS
from recollect.errors import RecollectError
from recollect.hosts.inspect.sessions import read_receipts, session_meant, stored_sessions
from recollect.hosts.inspect.turns import SentTurn, StageNote, read_turn
from recollect.hosts.mcp.definitions import PAST_KINDS, StatusArguments, WhyArguments
from recollect.hosts.tools.answers import AnswerLines, framed, indented, message_line, plain
from recollect.hosts.tools.arguments import Arguments, BadArguments, read_arguments
from recollect.hosts.tools.handler import ANSWER_TOKENS, LEAST_TOKENS, MemoryAnswer, MemoryTools

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.ports import Store
    from recollect.core.values.segment import StoredSegment

_SAID_CHARS: Final = 100
_MOST_MATCHES: Final = 5
_MOST_LOOKED_AT: Final = 4_000
"""Messages of a session that are looked through for words, the newest first."""


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
        request = await self._sent(session, asked.turn)
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

    def _whole(self, request: SentTurn, answer: AnswerLines) -> None:
        for stage in request.turn.stages:
            if stage.outcome in ("done", "failed", "late"):
                answer.add([_stage_line(stage)], [])
        if request.summary is not None:
            number, covered = request.summary
            answer.head(f"{len(covered)} messages are shown as the summary of compaction {number}")
        gone = [one for one in request.turn.messages if one.number is not None]
        if gone:
            answer.head(f"{len(gone)} messages were not sent as they came:")
        for one in gone:
            line = f"{one.number} {one.role}: {one.fate}: {joined_reasons(one.reasons)}"
            answer.add([indented(line)], [])
        answer.head(f"It held {len(request.messages)} messages:")
        # the newest matter most; what does not fit is counted
        for at in reversed(range(len(request.messages))):
            sent = request.messages[at]
            answer.add([indented(f"{at + 1} {sent.role}: {plain(sent.text)}")], sent.about)
        if answer.left_out:
            answer.head(
                f"({answer.left_out} more lines did not fit; `recollect replay` has it all.)"
            )

    async def _messages(self, session: str, wanted: str) -> Sequence[StoredSegment]:
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
        request = await attempted(self._sent(session, 0))
        if isinstance(request, Failure):
            answer.head(f"last request: {request.said}")
        else:
            self._sizes(request, answer)
        await self._kept_of(session, answer)
        await self._compactions(session, answer)
        return answer

    def _sizes(self, request: SentTurn, answer: AnswerLines) -> None:
        report = request.report
        answer.head(_request_line(request))
        window = int(report.get("window_tokens") or 0)
        sent = int(report.get("tokens_after") or 0)
        if window >= AGENTS_OWN_WINDOW_TOKENS:
            answer.head(
                f" {sent:,} tokens by the agent's transcript; its window and its compactions are "
                "its own and not known here"
            )
        elif window:
            answer.head(
                f" {sent:,} tokens, {sent / window:.0%} of a window of {window:,}; "
                f"{int(report.get('limit_tokens') or 0):,} fit next to the reply"
            )
        said = "\n".join(one.text for one in request.messages)
        parts = {**request.parts, f"{len(request.messages)} messages": said}
        for name, text in parts.items():
            answer.head(f" {name}: about {self._lookup.count_tokens(text):,} tokens")
        if request.summary is not None:
            number, covered = request.summary
            answer.head(f" {len(covered)} messages shown as the summary of compaction {number}")
        if left := sum(one.fate == "left out" for one in request.turn.messages):
            answer.head(f" {left} messages left out; `why` lists them")
        if recalled := report.get("recalled"):
            answer.head(f" {len(recalled)} passages were recalled for it")

    async def _kept_of(self, session: str, answer: AnswerLines) -> None:
        for one in await self._engine._look_up(stored_sessions):
            if one.session_id == session:
                answer.head(f"stored: {one.messages:,} messages, the last of {when(one.changed)}")

    async def _compactions(self, session: str, answer: AnswerLines) -> None:
        found = await self._engine._look_up(lambda store: read_receipts(store, session))
        stands = f"; number {found.shown} stands" if found.shown else ""
        answer.head(f"compactions: {len(found.records)} recorded{stands}")

    # of both

    async def _meant(self, wanted: str) -> str:
        if self._only is not None:
            if wanted not in ("", self._only):
                raise RecollectError("only this session's own requests can be asked for here.")
            return self._only
        named = wanted or self._own
        lines = await self._engine._look_up(stored_sessions)
        if named:
            return session_meant(lines, named, listing="`recollect memory sessions`").session_id
        if not lines:
            raise RecollectError("no session is in this memory yet.")
        return lines[0].session_id

    async def _sent(self, session: str, number: int) -> SentTurn:
        found = await self._engine._look_up(lambda store: read_turn(store, session, number))
        if isinstance(found, NotRebuilt):
            raise RecollectError(f"{found.reason}.")
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


def _became(request: SentTurn, stored: StoredSegment) -> str:
    id_, fate = stored.segment.message_id, request.fate(stored.segment.key)
    number, covered = request.summary or (0, frozenset[MessageId]())
    quoting = [at for at, sent in enumerate(request.messages, 1) if id_ in sent.about]
    # the row of a summary that replaces it begins with it, too, and is not it
    own = [
        at
        for at in quoting
        if (about := request.messages[at - 1].about)[0] == id_
        and not (id_ in covered and covered.issubset(about))
    ]
    why = "" if fate is None else f"{fate.fate}: {joined_reasons(fate.reasons)}"
    if own:
        changed = f"; {why}" if why else ""
        return f"it went out; it is message {own[0]} of the request{changed}"
    if id_ in covered:
        return f"summarised: message {quoting[0]} is the summary of compaction {number}"
    if why:
        return why
    if quoting:
        return f"it was not sent itself; message {quoting[0]} of the request quotes it"
    if stored.segment.said_at > request.rebuilt.record.at:
        return "it is newer than this request"
    return "this request came without it; memory_search finds it"


def _stage_line(stage: StageNote) -> str:
    told = f"{stage.stage}, {stage.outcome}: {joined_reasons(stage.reasons)}"
    return indented(plain(told) if len(told) < 80 else told)


def _request_line(request: SentTurn) -> str:
    record, report = request.rebuilt.record, request.report
    told = f"Request {record.number} of session {plain(request.session)}, {when(record.at)}"
    told += f", {plain(record.model or 'no model named')}"
    before, after = report.get("tokens_before"), report.get("tokens_after")
    if isinstance(before, int) and isinstance(after, int):
        told += f": {after:,} tokens" + (f" ({before:,} came in)" if before != after else "")
    if not request.rebuilt.exact:
        told += "; parts of it are masked or no longer kept"
    return told
