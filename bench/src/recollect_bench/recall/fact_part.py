"""The part of a memory that a slow model reads: what its hard questions rest on, and what is near.

Owns which messages those are and which questions are asked then. The memory itself stays whole, so
that passages compete as ever; facts of what was not read do not, which a note tells. Pure. Always
holds: of a question that is asked, all gold was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.errors import RecollectError
from recollect_bench.recall.sets import Memory, QuestionSet

ASKED_FOR: Final = frozenset(
    {"multi-hop", "event-ordering", "summarization", "multi-session-reasoning"}
)
"""What facts and digests should help with: what many messages say together."""
NOTE: Final = (
    "only a part was read for facts, by rules and by the model: the messages that questions on",
    "  several messages rest on, and the users' messages next to those; the memory is whole, but",
    "  facts of its other messages do not compete, which flatters facts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A set of which only so much is read for facts."""

    whole: QuestionSet
    read: Mapping[str, frozenset[int]] = field(default_factory=dict, repr=False)
    """The places that are read, by the memory's name."""


def part_to_read(whole: QuestionSet, *, most_messages: int, most_memories: int | None) -> Part:
    """Of the memories that need no more messages than this, the first so many."""
    read: dict[str, frozenset[int]] = {}
    memories: list[Memory] = []
    for memory in whole.memories:
        places = _places(memory)
        if places and len(places) <= most_messages and len(memories) != most_memories:
            asked = tuple(one for one in memory.questions if places.issuperset(one.gold))
            memories.append(replace(memory, questions=asked))
            read[memory.name] = places
    if not memories:
        least = min((len(held) for held in map(_places, whole.memories) if held), default=0)
        raise RecollectError(
            f"no memory of {whole.name} needs so few messages: --most-messages {least} reads one"
        )
    shortened = replace(whole, memories=tuple(memories), notes=(*whole.notes, *NOTE))
    return Part(whole=shortened, read=read)


def _places(memory: Memory) -> frozenset[int]:
    gold = {place for one in memory.questions if one.category in ASKED_FOR for place in one.gold}
    return frozenset(gold | {near for place in gold for near in _beside(memory, place)})


def _beside(memory: Memory, place: int) -> list[int]:
    """The nearest messages of users before and behind it."""
    before = range(place - 1, -1, -1)
    behind = range(place + 1, len(memory.messages))
    found = [
        next((at for at in side if memory.messages[at].role == "user"), None)
        for side in (before, behind)
    ]
    return [at for at in found if at is not None]
