"""Decides whether a block answers a question, in the same way for recall and for baselines.

Owns what counts as found, what a block costs, and how a ranking is packed for those who have no
packing of their own. What is charged is what the block would show, counted as OpenClaw counts (a
third of the characters), so that figures compare with theirs.

In a recorded session gold comes without labels: a message that names an identifier which stands
far back, and neither in the view nor in the last five messages, says by itself what memory should
have brought back. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import Final

from recollect.core.formats.recalled_block import date_line, passage_line, write_block
from recollect.core.search.bm25 import Bm25Index, inverse_document_frequency
from recollect.core.search.names import speaker_of
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.fill import pack
from recollect.core.values.history import Entry
from recollect.core.values.recall import RecalledPassage
from recollect.core.values.segment import NewSegment, SegmentId
from recollect_bench.recall.memory import StoredMemory, StoredMessage, StoredPassage
from recollect_bench.recall.sets import Question

# Future references in a recorded session


VIEW_TOKENS: Final = 20_000
"""What the model is taken to see: this much before the message; all before that is memory."""
LAST_MESSAGES: Final = 5
MOST_A_MESSAGE: Final = 8
"""References counted of one message, so that a pasted file does not outweigh a day's work."""
_LONGEST_READ: Final = 200_000
_IDENTIFIERS: Final = re.compile(
    r"""
    https?://[^\s"'<>()\[\]{}`,\\]{4,200}                          # an address
    |(?:~|\.{1,2})?(?:/[\w.@+-]{1,80}){2,20}                       # a path
    |(?:[\w@+-][\w.@+-]{0,80}/){1,20}[\w@+-][\w.@+-]{0,80}\.\w{1,8}
    |\b[\w-]{2,80}\.(?:py|pyi|js|mjs|ts|tsx|jsx|json|jsonl|ya?ml|toml|md|txt|html|css|go|rs|java
        |kt|rb|php|sh|sql|c|h|cc|cpp|hpp|cs|lock|ini|cfg|env|log|xml|csv|ipynb|swift|vue)\b
    |\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b               # a UUID
    |\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b           # a commit
    |\bE[A-Z]{4,20}\b|\b[A-Z]{2,10}-?\d{3,8}\b                     # an error's code, an issue
    |\b[A-Z]\w{2,60}(?:Error|Exception)\b
    |\b[a-zA-Z][a-zA-Z0-9]{0,40}(?:_[a-zA-Z0-9]{1,40}){1,8}\b      # a name in code
    |\b[a-z]{2,30}(?:[A-Z][a-z0-9]{1,30}){1,8}\b
    |\b(?:[A-Z][a-z0-9]{1,30}){2,8}\b
    |\b\d{6,20}\b                                                  # a number that is a name
    """,
    re.VERBOSE | re.ASCII,
)
_TRAILING: Final = ".,;:!?-/"


def identifiers_of(text: str) -> list[str]:
    """The identifiers a text names, each once, in reading order."""
    found = [match[0].rstrip(_TRAILING) for match in _IDENTIFIERS.finditer(text[:_LONGEST_READ])]
    return list(dict.fromkeys(name for name in found if len(name) > 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A message that names what only memory holds."""

    place: int
    """Which message of the session."""
    view_from: int
    """The first message the model still sees; all before it is memory."""
    identifiers: tuple[str, ...] = field(repr=False)


def find_references(entries: Sequence[Entry], segments: Sequence[NewSegment]) -> list[Reference]:
    """The references of a session, in order; entries and segments go together."""
    last_named: dict[str, int] = {}
    references: list[Reference] = []
    view_from = 0
    view_tokens = 0
    for place, (entry, new) in enumerate(zip(entries, segments, strict=True)):
        names = identifiers_of(new.segment.text)
        behind = min(view_from, place - LAST_MESSAGES)
        lost = [name for name in names if last_named.get(name, behind) < behind]
        if lost and new.segment.role in ("user", "assistant"):
            named = tuple(lost[:MOST_A_MESSAGE])
            references.append(Reference(place=place, view_from=view_from, identifiers=named))
        last_named.update(dict.fromkeys(names, place))
        view_tokens += entry.tokens
        while view_tokens > VIEW_TOKENS:
            view_tokens -= entries[view_from].tokens
            view_from += 1
    return references


BUDGET_TOKENS: Final = 4_000
"""OpenClaw's cap of a block."""
TOP_MESSAGES: Final = 10
_TOKEN_CHARS: Final = 3


def openclaw_tokens(text: str) -> int:
    """Tokens as OpenClaw counts them."""
    return ceil(len(text) / _TOKEN_CHARS)


def block_tokens(passages: Sequence[RecalledPassage]) -> int:
    """What a block of these passages costs, all that stands around them included."""
    return openclaw_tokens(write_block((), passages))


def whole_message(message: StoredMessage) -> RecalledPassage:
    """A message as it would stand in a block in one piece."""
    said_at = datetime.fromtimestamp(message.said_at, UTC)
    names_itself = message.role == "user" and speaker_of(message.text)
    return RecalledPassage(
        text=message.text,
        role=message.role,
        said_at=f"{said_at:%Y-%m-%d %H:%M}",
        score=0.0,
        speaker="" if names_itself else message.role,
        sitting=f"{message.session}\n{said_at:%Y-%m-%d}",
        order=(message.said_at, message.sequence, 0),
    )


def pack_ranked(ranked: Sequence[RecalledPassage]) -> list[RecalledPassage]:
    """The best that fit into a block, for rankings that do not come from the stage."""
    frame = openclaw_tokens(write_block((), ())) + openclaw_tokens("<detail>\n</detail>\n\n")
    return pack(
        ranked,
        budget_tokens=BUDGET_TOKENS - frame,
        cost=lambda passage: openclaw_tokens(passage_line(passage) + "\n"),
        sitting=lambda passage: passage.sitting,
        heading_cost=lambda passage: openclaw_tokens(date_line(passage) + "\n"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How much of a question's gold a block and a ranking hold."""

    all_in: bool
    """Of every gold message something is in the block."""
    strict: bool
    """Of every gold message the passage that holds the answer is in the block."""
    recall_at_10: float
    """The share of gold messages among the ten best."""
    session_rank: int | None
    """The rank of the first session with a gold message, among distinct sessions."""
    ranks: tuple[int | None, ...]
    """The rank of each gold message among distinct messages, from 1; None where it has none."""
    packed: tuple[bool, ...]
    """Whether something of each gold message is in the block."""


class AnswerPassages:
    """Knows of the passages of a memory's messages which of them hold an answer."""

    def __init__(self, messages: Sequence[Sequence[StoredPassage]]) -> None:
        self._messages = messages
        index = Bm25Index.build([passage.words for message in messages for passage in message])
        self.documents = index.documents
        self.frequencies = index.document_frequencies

    def needed(self, question: Question) -> list[tuple[str, ...]]:
        """For each gold message the passages that must be shown, by their text.

        That is the one that shares the most with the answer, its rare words first; without an
        answer it is every passage.
        """
        answer = set(tokenize(question.answer))
        return [self._needed_of(place, answer) for place in question.gold]

    def _needed_of(self, place: int, answer: set[str]) -> tuple[str, ...]:
        passages = self._messages[place]
        if not answer or len(passages) < 2:
            return tuple(passage.text for passage in passages)
        shared = [
            sum(map(self.worth, answer.intersection(stored_passage.words)))
            for stored_passage in passages
        ]
        return (passages[shared.index(max(shared))].text,)

    def worth(self, word: str) -> float:
        """What it says of a passage that it holds this word: the rarer, the more."""
        return inverse_document_frequency(
            document_frequency=self.frequencies.get(word, 0), documents=self.documents
        )


class Judge:
    """Knows of a memory where each segment stands and which passage holds an answer."""

    def __init__(self, stored: StoredMemory) -> None:
        self._by_segment = {message.segment: place for place, message in enumerate(stored.messages)}
        self._by_arrival = {
            stored_message.sequence: place for place, stored_message in enumerate(stored.messages)
        }
        self._sessions = [message.session for message in stored.messages]
        self._passages = AnswerPassages([message.passages for message in stored.messages])

    def place(self, passage: RecalledPassage) -> int:
        """Where the message of a recalled passage stands in the memory."""
        return self._by_arrival[passage.order[1]]

    def place_of(self, segment: SegmentId) -> int:
        """Where a stored message stands in the memory."""
        return self._by_segment[segment]

    def needed(self, question: Question) -> list[tuple[str, ...]]:
        """For each gold message the passages that must be shown, by their text."""
        return self._passages.needed(question)

    def verdict(
        self,
        question: Question,
        *,
        block: Sequence[RecalledPassage],
        ranking: Iterable[SegmentId],
    ) -> Verdict:
        """What a block, and the ranking it was packed from, hold of a question's gold."""
        assert block_tokens(block) <= BUDGET_TOKENS, "a block is over its budget"
        shown: dict[int, list[str]] = {}
        for passage in block:
            shown.setdefault(self.place(passage), []).append(passage.text)
        order = list(dict.fromkeys(self._by_segment[segment] for segment in ranking))
        rank_of = {place: rank for rank, place in enumerate(order, 1)}
        ranks = tuple(rank_of.get(place) for place in question.gold)
        sessions = list(dict.fromkeys(self._sessions[place] for place in order))
        right = {self._sessions[place] for place in question.gold}
        top = [rank is not None and rank <= TOP_MESSAGES for rank in ranks]
        strict = [
            all(any(text in one for one in shown.get(place, ())) for text in texts)
            and place in shown
            for place, texts in zip(question.gold, self.needed(question), strict=True)
        ]
        packed = tuple(place in shown for place in question.gold)
        return Verdict(
            all_in=all(packed),
            strict=all(strict),
            recall_at_10=sum(top) / len(top),
            session_rank=next(
                (rank for rank, session in enumerate(sessions, 1) if session in right), None
            ),
            ranks=ranks,
            packed=packed,
        )
