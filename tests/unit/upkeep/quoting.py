"""A batch in which a message is quoted wherever one can be."""

from typing import TypedDict

from tests.store_contract import examples

from recollect.core.formats.stored_records import split_state
from recollect.core.values.batch import Batch, NewJob, SessionWrite
from recollect.core.values.edit import Insert, LeaveOut, Shorten, StageName
from recollect.core.values.history import SessionState
from recollect.core.values.reason import NOT_RUN, Reason

MARKER = "plum-colored-marker"


class Made(TypedDict):
    """What every edit says of how it came."""

    stage: StageName
    reason: Reason
    turn: int


def quoting_batch() -> Batch:
    """A message with the marker, another without, and everything that may quote the first."""
    said, other = examples.conversation([f"it is {MARKER}", "an answer"])
    about = (said.segment.message_id,)
    made = Made(stage="prune", reason=NOT_RUN, turn=1)
    edits = (
        Shorten(anchor=said.segment.key, part=0, text=MARKER, **made),
        Insert(
            anchor=other.segment.key,
            placement="before",
            text=f"recalled {MARKER}",
            quotes=about,
            **made,
        ),
        LeaveOut(anchor=other.segment.key, part=0, **made),
    )
    return Batch(
        at=1.0,
        segments=(said, other),
        vectors=(examples.vectors([said, other]),),
        facts=(
            examples.fact("alone", sources=[said.segment.id], content=f"fact {MARKER}"),
            examples.fact("both", sources=[said.segment.id, other.segment.id]),
            examples.fact("by hand"),
        ),
        jobs=(
            NewJob(kind="extract", key="a", payload=MARKER.encode(), about=about),
            NewJob(kind="embed", key="b"),
        ),
        session=SessionWrite(
            session="talk",
            turn=1,
            state=split_state(SessionState(turn=1, edits=edits)),
            about=about,
            path=(said.segment.key, other.segment.key),
            ids=(said.segment.message_id, other.segment.message_id),
        ),
        pieces=(examples.piece(f"row {MARKER}", about=about), examples.piece("row two")),
        compactions=(
            examples.compaction(1, about, body=f"summary {MARKER}"),
            examples.compaction(2, (other.segment.message_id,)),
        ),
    )
