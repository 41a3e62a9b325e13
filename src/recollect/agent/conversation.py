"""A session's record while the agent runs: its transcript, and its line of the index.

Owns what is written when. Always holds: what a method wrote is on the disk when it returns, so
that no request goes out before what it rests on is durable; where transcript and index differ,
the transcript is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recollect.agent.flush_result import FlushResult
from recollect.agent.history import MARK, history_of, is_own
from recollect.agent.record_cut import undone_elsewhere
from recollect.formats.pi_session import PiEntry, PiShown, path_to
from recollect.ports import Clock
from recollect.session.index import SessionIndex, SessionRecord
from recollect.session.transcript import SessionTranscript
from recollect.session.undo import NothingToUndo, is_undo, standing_compactions
from recollect.values.compaction import CompactionResult
from recollect.values.history import SessionState
from recollect.values.model import Usage

FLUSH = "recollect.flush"
COMMAND = "recollect.command"
FAILURE = "recollect.failure"


class Conversation:
    """One session as the agent writes it."""

    def __init__(
        self, transcript: SessionTranscript, *, clock: Clock, index: SessionIndex | None, key: str
    ) -> None:
        """`key` is the session's in the index; without an index only the transcript is kept."""
        self.transcript = transcript
        self._clock = clock
        self._index = index
        self._key = key

    @property
    def session_id(self) -> str:
        """The transcript's own id."""
        return self.transcript.session_id

    def shown(self) -> tuple[PiShown, ...]:
        """The history, each message with its entry; as it was said, not as it is masked."""
        said = {one.entry_id: one.message for one in self.transcript.history().shown}
        return tuple(
            PiShown(entry_id=one.entry_id, message=said.get(one.entry_id, one.message))
            for one in history_of(self.transcript.entries)
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
            "steps": result.steps,
        }
        self.transcript.append_custom(FLUSH, told)
        if result.done:
            now = self._clock.now()
            self._change(lambda record: record.after_flush(now))

    def keep_command(self, name: str, argument: str) -> None:
        """A command: carried out once, never said to a model."""
        data = {"command": name, **({"argument": argument} if argument else {})}
        self.transcript.append_custom(COMMAND, data)

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
        found = [_number_of(one) for one in self.transcript.entries if one.kind == "compaction"]
        return frozenset(number for number in found if number is not None)

    @property
    def last_activity(self) -> float | None:
        """When something was last written, in seconds; None for a new transcript."""
        entries = self.transcript.entries
        return entries[-1].milliseconds / 1000 if entries else None

    def _change(self, change: Callable[[SessionRecord], SessionRecord]) -> None:
        """Change the index's record of this transcript; one of another transcript is over."""
        path = path_to(self.transcript.entries)
        made = sum(one.kind == "compaction" and not is_undo(one) for one in path)

        def changed(record: SessionRecord) -> SessionRecord:
            own = record.session_id == self.session_id
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
