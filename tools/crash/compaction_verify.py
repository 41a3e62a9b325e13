"""What a killed agent left behind, compared with what it acknowledged.

Looks at a session's transcript, at the store's segments, state and compactions, and at what the
one says of the other. It opens a copy of the transcript, because opening mends, and it must never
repair anything. Always holds: a message counts as lost where it was acknowledged for a place and
is not there, also when a later turn would bring it back.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from recollect.adapters.session.transcript import SessionTranscript
from recollect.agent.conversation import MARK
from recollect.core.formats.stored_records import join_state, read_record
from recollect.core.ports import Store
from recollect.core.values.compaction import CompactionRecord
from recollect.core.values.history import SessionState, newest_cut
from recollect.errors import FormatError, TranscriptError
from tools.crash.desk import Desk, markers_in, session_of_turn, spoken_in, turn_of
from tools.crash.verify import PAGE


@dataclass(slots=True, kw_only=True)
class Durable:
    """The markers that were acknowledged, by the place that has them."""

    transcript: set[str] = field(default_factory=set)
    store: set[str] = field(default_factory=set)
    spool: set[str] = field(default_factory=set)
    """On the way into the store."""

    def of_session(self, session: str) -> Durable:
        """Those of one session."""

        def own(marks: Iterable[str]) -> set[str]:
            return {mark for mark in marks if session_of_turn(turn_of(mark)) == session}

        return Durable(
            transcript=own(self.transcript), store=own(self.store), spool=own(self.spool)
        )

    def drained(self) -> Durable:
        """The same once nothing waits in the spool."""
        return Durable(transcript=self.transcript, store=self.store | self.spool)


@dataclass(slots=True, kw_only=True)
class Left:
    """What was found; markers, so that the same loss counts once."""

    lost: set[str] = field(default_factory=set)
    twice: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    compactions: int = 0
    """That the store has of these sessions."""
    unrecorded: int = 0
    """Of them, those that the transcript does not name."""
    torn: int = 0
    """Transcripts whose last line was cut off."""

    @property
    def wrong(self) -> int:
        """How much is."""
        return len(self.lost) + len(self.twice) + len(self.problems)

    def add(self, other: Left) -> None:
        """Count what `other` found too."""
        self.lost |= other.lost
        self.twice |= other.twice
        self.problems += other.problems
        self.compactions += other.compactions
        self.unrecorded += other.unrecorded
        self.torn += other.torn


async def verify_session(desk: Desk, store: Store, session: str, durable: Durable) -> Left:
    """Look at one session; `durable` are the markers acknowledged for it."""
    left = Left()
    in_store = await _spoken_in_store(store, session)
    _compare(left, "store", in_store, durable.store)
    state = await _state(store, session, left)
    records = await store.compactions(session)
    _check_records(left, state, records)
    left.compactions = len(records)
    if not desk.file(session).exists():
        _compare(left, "transcript", [], durable.transcript)
        return left
    with tempfile.TemporaryDirectory(prefix="recollect-crash-") as folder:
        _look_into_transcript(desk, Path(folder), session, left, durable, in_store, records)
    return left


def _look_into_transcript(
    desk: Desk,
    folder: Path,
    session: str,
    left: Left,
    durable: Durable,
    in_store: Sequence[str],
    records: Sequence[CompactionRecord],
) -> None:
    beside = replace(desk, home=folder)
    beside.file(session).parent.mkdir()
    shutil.copy(desk.file(session), beside.file(session))
    data = beside.file(session).read_bytes()
    try:
        transcript = beside.transcript(session)
    except TranscriptError as error:
        left.problems.append(f"the transcript of {session} does not open: {error}")
        return
    with transcript:
        spoken = spoken_in(transcript)
        _compare(left, "transcript", spoken, durable.transcript)
        if data and not data.endswith(b"\n"):
            left.torn += 1
            if not transcript.notes:
                left.problems.append(f"the transcript of {session} was mended and nobody told")
        if strangers := set(in_store) - set(spoken):
            left.problems.append(f"{len(strangers)} messages are in the store only")
        _check_recorded(left, transcript, {record.number for record in records})


def _compare(left: Left, place: str, held: Sequence[str], said: set[str]) -> None:
    """What a place holds against what was acknowledged for it; order counts, too."""
    counts = Counter(held)
    left.lost |= {f"{place} {mark}" for mark in said if not counts[mark]}
    left.twice |= {f"{place} {mark}" for mark, count in counts.items() if count > 1}
    turns = [turn_of(mark) for mark in held]
    if turns != sorted(turns):
        left.problems.append(f"the {place} holds turns out of their order")


async def _spoken_in_store(store: Store, session: str) -> list[str]:
    found: list[str] = []
    after = 0
    while page := await store.page(after=after, limit=PAGE, session=session):
        found += [mark for stored in page for mark in markers_in(stored.segment.text)]
        after = page[-1].sequence
    return found


async def _state(store: Store, session: str, left: Left) -> SessionState | None:
    stored = await store.session(session)
    if stored is None:
        return None
    try:
        return join_state(stored.state, stored.path, stored.ids)
    except FormatError as error:
        left.problems.append(f"the state of {session} does not load: {error}")
        return None


def _check_records(
    left: Left, state: SessionState | None, records: Sequence[CompactionRecord]
) -> None:
    """The standing cut has its record, and the record stands for all that the cut hides."""
    numbers = [record.number for record in records]
    if numbers != list(range(1, len(numbers) + 1)):
        left.problems.append(f"compactions are numbered {numbers}")
    cut = None if state is None else newest_cut(state.edits)
    if state is None or cut is None:
        if records:
            left.problems.append(f"{len(records)} compactions are recorded, and no cut stands")
        return
    if state.compactions != len(records):
        left.problems.append(f"{state.compactions} compactions counted, {len(records)} recorded")
    record = next((one for one in records if one.number == cut.number), None)
    if record is None:
        left.problems.append(f"the cut of compaction {cut.number} stands without its record")
        return
    result = read_record(record.body).result
    if (result.first_kept, result.summary) != (cut.anchor, cut.summary):
        left.problems.append(f"compaction {cut.number} is recorded otherwise than it stands")
    if cut.anchor not in state.path:
        left.problems.append(f"the cut of compaction {cut.number} hangs on no message")
        return
    hidden = state.ids[: state.path.index(cut.anchor)]
    if missing := set(hidden) - set(record.about):
        left.problems.append(f"{len(missing)} hidden messages are in no summary's range")


def _check_recorded(left: Left, transcript: SessionTranscript, known: set[int]) -> None:
    """The transcript's compactions are the store's, each once, one after the other."""
    numbers = [
        entry.value["details"][MARK]["number"]
        for entry in transcript.entries
        if entry.kind == "compaction" and MARK in (entry.value.get("details") or {})
    ]
    if numbers != sorted(set(numbers)):
        left.problems.append(f"the transcript numbers its compactions {numbers}")
    if unknown := set(numbers) - known:
        left.problems.append(f"{len(unknown)} compactions of the transcript are not in the store")
    left.unrecorded = len(known - set(numbers))
    if numbers and not transcript.context().shown:
        left.problems.append("the transcript shows nothing after its compaction")
