"""A session's record while the agent runs: its transcript, and its line of the index.

Owns what is written when. What a method wrote is on the disk when it returns, so that no request
goes out before what it rests on is durable; where transcript and index differ, the transcript is
right. Also owns what of a transcript is the history of a request, and how compactions and their
undo get into it: our own compactions hide nothing here (the engine's cut does), another program's
count as they do for pi, and the transcript keeps at least what the engine shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from recollect.adapters.session.index import SessionIndex, SessionRecord
from recollect.adapters.session.transcript import SessionTranscript
from recollect.adapters.session.undo import NothingToUndo, is_undo, standing_compactions
from recollect.agent.events import FlushResult
from recollect.core.compaction.cut import UndoResult
from recollect.core.engine.session import Context
from recollect.core.formats.pi_session import (
    PiEntry,
    PiShown,
    build_context,
    build_history,
    path_to,
)
from recollect.core.formats.translate import WireHistory
from recollect.core.ports import Clock
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.edit import Cut
from recollect.core.values.history import SessionState, newest_cut
from recollect.core.values.message import EntryKey
from recollect.core.values.model import Usage
from recollect.core.values.reason import Cause, Reason

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine

# The history that every request begins from


MARK = "recollect"
"""Key in a compaction's `details`: the engine made it, and its cut stands in the store."""


def history_of(entries: Sequence[PiEntry], leaf: str | None = None) -> tuple[PiShown, ...]:
    """The conversation on the path to the leaf."""
    path = path_to(entries, leaf)
    foreign = [at for at in standing_compactions(path) if not is_own(path[at])]
    if not foreign:
        return build_history(entries, leaf).shown
    last = foreign[-1]
    before = build_context(path[: last + 1], path[last].id).shown
    after = [entry for entry in path[last + 1 :] if entry.kind != "compaction"]
    return before + build_history(_relinked(after)).shown


def is_own(entry: PiEntry) -> bool:
    """Whether a compaction was made by our engine."""
    details = entry.value.get("details")
    return isinstance(details, dict) and MARK in details


def _relinked(entries: Sequence[PiEntry]) -> list[PiEntry]:
    """A stretch of a path as a path of its own."""
    linked: list[PiEntry] = []
    parent: str | None = None
    for entry in entries:
        value = {**entry.value, "parentId": parent}
        linked.append(PiEntry(number=entry.number, line=entry.line, value=value))
        parent = entry.id
    return linked


# Compactions in the transcript


def unrecorded(context: Context, recorded: Collection[int]) -> tuple[CompactionResult, ...]:
    """What a prepared turn tells of compactions that the transcript does not know.

    The turn waited for one; or the process ended between the engine's commit and ours; or the
    user did not wait for one that was under way.
    """
    made = context.compaction
    cut = newest_cut(context.edits)
    if cut is None or cut.number in recorded:
        return (made,) if made is not None and not made.compacted else ()
    if made is not None and made.number == cut.number:
        return (made,)
    result = CompactionResult(
        convergence="reduced",
        reason=Reason(Cause.MADE_EARLIER),
        trigger="threshold",
        number=cut.number,
        summary=cut.summary,
        first_kept=cut.anchor,
        tokens_before=context.report.tokens_before,
        tokens_after=context.report.tokens_after,
    )
    return (result,)


def undone_elsewhere(number: int, state: SessionState) -> bool:
    """Whether the engine made this compaction and no longer shows it.

    `recollect undo` works on the store alone; or the process ended between the engine's commit
    and ours. A state that never heard of the compaction says nothing: its store may be away.
    """
    if not 0 < number <= state.compactions:
        return False
    cuts = [edit for edit in state.edits if isinstance(edit, Cut)]
    if any(cut.number == number for cut in cuts):
        return False
    # What lies behind the oldest cut stands with it, though its edit is no longer kept.
    return not cuts or number > cuts[0].before


async def undo_in_engine(engine: Engine, session_id: str, entries: Sequence[PiEntry]) -> UndoResult:
    """Take back the engine's last compaction on the branch that is under way.

    The engine knows no branches: its newest cuts may be of one that was left. Where none stands on
    this one nothing is taken back; else those go first.
    """
    path = path_to(entries)
    here = {_number_of(entry) for entry in path if entry.kind == "compaction"}
    made = {_number_of(entry) for entry in entries if entry.kind == "compaction"}
    while True:
        await engine.observe(session_id, {"usage": {}})  # loads it, says nothing
        cut = newest_cut(engine.session(session_id).state.edits)
        if cut is None or cut.number not in made - here:
            return await engine.undo(session_id)
        if not standing_compactions(path):
            return UndoResult(edits=(), undone=None, reason=Reason(Cause.NOTHING_TO_UNDO))
        done = await engine.undo(session_id)
        if done.undone is None:
            return done


def first_kept_entry(
    first_kept: EntryKey | None,
    path: Sequence[EntryKey],
    wire: WireHistory,
    shown: Sequence[PiShown],
    *,
    leading: int,
) -> str | None:
    """The entry of the first message that the engine keeps; None in an empty transcript.

    `path` are the engine's keys of the request, `leading` how many messages of it stand before
    the history.
    """
    if not shown:
        return None
    at = path.index(first_kept) - leading if first_kept in path else -1
    if not 0 <= at < len(wire.sources):
        return shown[0].entry_id  # not to be found: keeping too much loses nothing
    return _whole_turn(shown, wire.sources[at])


def _whole_turn(shown: Sequence[PiShown], position: int) -> str | None:
    """A result leads back to the reply that asked for it: nobody shows one without the other."""
    while position > 0 and shown[position].message.get("role") == "toolResult":
        position -= 1
    return shown[position].entry_id


FLUSH = "recollect.flush"
COMMAND = "recollect.command"
SidePurpose: TypeAlias = Literal["summary", "flush"]
SPENT = "recollect.spent"
"""An entry on what was asked of a model beside the conversation: for a summary, in a flush turn."""
BRANCH = "recollect.branch"


class Conversation:
    """One session as the agent writes it."""

    def __init__(
        self, transcript: SessionTranscript, *, clock: Clock, index: SessionIndex | None, key: str
    ) -> None:
        """`key` is the session's in the index; without an index only the transcript is kept."""
        self.transcript = transcript
        self._clock = clock
        self._has_key = False
        """Whether the key's record was made this transcript's: it may be another's since."""
        self._index = index
        self._key = key

    @property
    def session_id(self) -> str:
        """The transcript's own id."""
        return self.transcript.session_id

    def shown(self) -> tuple[PiShown, ...]:
        """The history, each message with its entry; as it was said, not as it is masked."""
        said = {item.entry_id: item.message for item in self.transcript.history().shown}
        return tuple(
            PiShown(entry_id=item.entry_id, message=said.get(item.entry_id, item.message))
            for item in history_of(self.transcript.entries)
        )

    def milliseconds(self) -> int:
        """Now, as messages spell times."""
        return round(self._clock.now() * 1000)

    def say(self, text: str, images: Sequence[tuple[str, str]] = ()) -> str:
        """What the user said; the entry's id."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        blocks.extend({"type": "image", "data": data, "mimeType": kind} for kind, data in images)
        return self.keep({"role": "user", "content": blocks, "timestamp": self.milliseconds()})

    def keep(self, message: Mapping[str, Any]) -> str:
        """A message; the entry's id."""
        entry = self.transcript.append_message(message)
        assert entry.id is not None, "entries that are added here have ids"
        return entry.id

    def keep_usage(self, usage: Usage | None) -> None:
        """What the provider counted for the last reply."""
        if usage is not None:
            self._change(
                lambda record: record.after_reply(
                    input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
                )
            )

    def keep_compaction(self, result: CompactionResult, first_kept: str | None) -> str:
        """A compaction that was made; the entry's id."""
        own = {
            "number": result.number,
            "trigger": result.trigger,
            "tokensAfter": result.tokens_after,
        }
        entry = self.transcript.append_compaction(
            summary=result.summary,
            first_kept_entry_id=first_kept,
            tokens_before=result.tokens_before,
            details={**result.details, MARK: own},
        )
        self._change(lambda record: record.with_stale_tokens(result.tokens_after))
        assert entry.id is not None, "entries that are added here have ids"
        return entry.id

    def keep_flush(self, result: FlushResult) -> None:
        """A flush turn: no part of the conversation, but part of the record."""
        told = {
            "outcome": result.outcome,
            "reason": result.reason,
            "path": result.path,
            "bytesWritten": result.bytes_written,
            "written": dict(result.written),
            "refused": [str(refusal) for refusal in result.refused],
            "steps": result.steps,
        }
        self.transcript.append_custom(FLUSH, told)
        if result.done:
            now = self._clock.now()
            self._change(lambda record: record.after_flush(now))

    def keep_spent(self, *, purpose: SidePurpose, model: str, usage: Usage) -> None:
        """What was asked of a model beside the conversation."""
        given = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        told = {
            "input": given,
            "output": usage.output_tokens,
            "cacheRead": usage.cache_read_tokens,
            "cacheWrite": usage.cache_write_tokens,
        }
        self.transcript.append_custom(SPENT, {"purpose": purpose, "model": model, "usage": told})

    def keep_command(self, name: str, argument: str) -> None:
        """A command: carried out once, never said to a model."""
        data = {"command": name, **({"argument": argument} if argument else {})}
        self.transcript.append_custom(COMMAND, data)

    def keep_name(self, name: str) -> None:
        """What the user calls the session."""
        self.transcript.append_name(name)

    def keep_model(self, *, provider: str, name: str) -> None:
        """Another model answers from here on."""
        self.transcript.append_model_change(provider=provider, model_id=name)

    def model_of(self, provider: str) -> str | None:
        """The model that was chosen last in this session, on whichever branch; None where none
        was, or it is another provider's."""
        changes = [entry for entry in self.transcript.entries if entry.kind == "model_change"]
        if not changes or changes[-1].text("provider") != provider:
            return None
        return changes[-1].text("modelId")

    def branch_before(self, entry_id: str) -> None:
        """Go on before an entry of the conversation, as if it and what follows were not said."""
        path = path_to(self.transcript.entries)
        at = next(at for at, entry in enumerate(path) if entry.id == entry_id)
        self.transcript.append_branch(path[at - 1].id if at else None, BRANCH)
        self._change(SessionRecord.with_stale_tokens)

    def undo(self) -> str | NothingToUndo:
        """Take the last compaction back; the entry's id."""
        done = self.transcript.append_undo()
        if isinstance(done, NothingToUndo):
            return done
        self._change(SessionRecord.with_stale_tokens)
        return str(done.id)

    def follow(self, state: SessionState) -> int:
        """Take back the compactions that were undone in the engine alone; how many."""
        taken = 0
        while (number := self._own_number()) is not None and undone_elsewhere(number, state):
            self.undo()
            taken += 1
        return taken

    def settle_index(self) -> None:
        """Let the index say what the transcript says: a crash may have come between the two."""
        stale = _compacted_since_counted(path_to(self.transcript.entries))

        def settled(record: SessionRecord) -> SessionRecord:
            return record.with_stale_tokens() if stale and record.tokens_are_fresh else record

        self._change(settled)

    @property
    def compactions(self) -> int:
        """How many compactions of this transcript still stand."""
        return len(standing_compactions(path_to(self.transcript.entries)))

    @property
    def last_compaction_is_own(self) -> bool:
        """The compaction that counts was made by our engine, whose cut goes with it."""
        return self._own_number() is not None

    def _own_number(self) -> int | None:
        """The number of the compaction that counts; None where none does, or another program's."""
        path = path_to(self.transcript.entries)
        standing = standing_compactions(path)
        return _number_of(path[standing[-1]]) if standing else None

    @property
    def flushed_in_this_cycle(self) -> bool:
        """A flush turn ran since the last compaction; read off the transcript itself."""
        for entry in reversed(path_to(self.transcript.entries)):
            if entry.kind == "compaction":
                return False
            if entry.kind == "custom" and entry.text("customType") == FLUSH:
                data = entry.value.get("data")
                if isinstance(data, dict) and data.get("outcome") != "skipped":
                    return True
        return False

    def recorded_cuts(self) -> frozenset[int]:
        """The numbers of the engine's compactions that stand in the transcript, undone or not."""
        found = [
            _number_of(entry) for entry in self.transcript.entries if entry.kind == "compaction"
        ]
        return frozenset(number for number in found if number is not None)

    @property
    def began(self) -> float | None:
        """When the first entry was written, in seconds; None for a new transcript."""
        entries = self.transcript.entries
        return entries[0].milliseconds / 1000 if entries else None

    @property
    def name(self) -> str:
        """What the user called the session, on whichever branch; empty where nobody did."""
        named = [
            entry.text("name") or ""
            for entry in self.transcript.entries
            if entry.kind == "session_info"
        ]
        return named[-1] if named else ""

    @property
    def last_activity(self) -> float | None:
        """When something was last written, in seconds; None for a new transcript."""
        entries = self.transcript.entries
        return entries[-1].milliseconds / 1000 if entries else None

    def _change(self, change: Callable[[SessionRecord], SessionRecord]) -> None:
        """Change the index's record of this transcript; that of another one, which was begun under
        the same key since, is left alone."""
        path = path_to(self.transcript.entries)
        made = sum(entry.kind == "compaction" and not is_undo(entry) for entry in path)

        def changed(record: SessionRecord) -> SessionRecord:
            own = record.session_id == self.session_id
            if not own and self._has_key:
                return record
            self._has_key = True
            begun = record if own else record.begun_anew(self.session_id)
            return change(begun.with_compactions(made))

        if self._index is not None:
            self._index.update(self._key, changed)

    def record(self) -> SessionRecord | None:
        """The session's line of the index."""
        return None if self._index is None else self._index.get(self._key)


def _number_of(compaction: PiEntry) -> int | None:
    """Which compaction of the engine's it is; None for another program's."""
    own = compaction.value["details"][MARK] if is_own(compaction) else None
    number = own.get("number") if isinstance(own, dict) else None
    return number if isinstance(number, int) else None


def _compacted_since_counted(path: Sequence[PiEntry]) -> bool:
    """A compaction, or the undoing of one, stands behind the last reply that was counted."""
    for entry in reversed(path):
        if entry.kind == "compaction":
            return True
        usage = (entry.message or {}).get("usage")
        if isinstance(usage, dict) and usage.get("totalTokens"):
            return False
    return False
