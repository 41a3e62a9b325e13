"""Builds a turn's query from the user's words, and the request to memory. If a turn ends with tool
results, the query is the user message before them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, Protocol, TypeAlias, cast

from recollect.core.formats.summaries import without_names
from recollect.core.ports import Archive
from recollect.core.rules.noise import (
    is_noise,
    strip_channel_prefix,
    without_attachments,
    without_reminders,
)
from recollect.core.search.facts import LISTING_WORDS
from recollect.core.search.names import SPEAKS_FROM, speaker_names_asked, speaker_of, speaker_word
from recollect.core.search.question import (
    Question,
    needs_context,
    question_text,
    read_question,
    what_asks,
)
from recollect.core.turn.gate import find_lost_words, segments_in_view
from recollect.core.turn.recall_facts import types_asked
from recollect.core.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.core.values.fact import FactType
from recollect.core.values.history import Entry, SessionId, SpaceId
from recollect.core.values.message import EntryKey, Message, Text, ToolCall, ToolResult
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import (
    Asks,
    CandidateQuery,
    RecallReads,
    RecallRequest,
    RecallScope,
)
from recollect.system.config.settings import Recall as RecallSettings

PASSAGE_TOKENS: Final = 105  # about the tokens of one quoted passage
_CANDIDATE_MULTIPLIER: Final = 4  # not measured; the ranking reorders them
_LEAST_WANTED: Final = 12  # not measured; for very small blocks
Queries: TypeAlias = tuple[Question, tuple[FactType, ...], CandidateQuery]
QUERY_MESSAGES: Final = 3  # not measured; earlier ones have other subjects
LEAST_QUERY_CHARS: Final = 3  # shorter texts have no words
OWN_MARKS = ("<recalled-context", "[recollect]", "<summary>")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The text to search for, or the reason why there is none."""

    text: str
    reason: Reason


def query(entries: Sequence[Entry], *, with_noise: bool = False) -> QueryResult:
    spoken = (spoken_text(entry) for entry in reversed(entries) if _may_ask(entry))
    worded = (text for text in spoken if text and (with_noise or not is_noise(text)))
    texts = list(islice(worded, QUERY_MESSAGES))
    reason = Reason(Cause.ASKED, messages=len(texts)) if texts else Reason(Cause.NO_QUERY)
    return QueryResult(text="\n".join(reversed(texts)), reason=reason)


def spoken_text(entry: Entry | Message) -> str:
    """Return the user's words in a message, without reminders, files, recalled blocks or channel
    prefix."""
    texts = [
        part.text
        for part in entry.parts
        if isinstance(part, Text) and not part.text.lstrip().startswith(OWN_MARKS)
    ]
    if not texts:
        return ""
    own_texts = map(without_reminders, without_attachments(texts, nearest=True))
    return strip_channel_prefix("\n".join(own_texts)).strip()


def uses_tools(entries: Sequence[Entry]) -> bool:
    """Return whether these messages contain tool calls or results."""
    return any(entry.calls or entry.results for entry in entries)


def last_turn(entries: Sequence[Entry]) -> Entry:
    """Return the last message that is not a system message, else the last message."""
    return next((entry for entry in reversed(entries) if entry.role != "system"), entries[-1])


def newest_exchange(entries: Sequence[Entry]) -> frozenset[EntryKey]:
    """Return the newest message with text by the user, and all messages after it."""
    return frozenset(entry.key for entry in entries[_last_said(entries, len(entries)) :])


def last_exchange(entries: Sequence[Entry]) -> frozenset[EntryKey]:
    """Return the last but one message with text of the user, and all messages after it."""
    since = _last_said(entries, _last_said(entries, len(entries)))
    return frozenset(entry.key for entry in entries[since:])


def _last_said(entries: Sequence[Entry], before: int) -> int:
    while before > 0:
        before -= 1
        if entries[before].role == "user" and spoken_text(entries[before]):
            break
    return before


_MOST_LEANT_ON: Final = 3  # not measured
_YOU: Final = re.compile(r"\b(?:you|your|yours|ya|u)\b", re.IGNORECASE)
_LATELY: Final = 16  # not measured; bounds the work of one turn
_SPEAKS: Final = 2  # one name may be a quotation
_SHARED_PAST: Final = re.compile(
    r"\b(?:did|had|have) we\b|\b(?:remember|remind|recall)\b|我们|记得"
    r"|\bwe (?:\w+ )?(?:said|agreed|decided|settled|chose|picked|discussed|planned)\b",
    re.IGNORECASE,
)
_NOTE: Final = re.compile(
    r"\W*(?:(?:i(?:['’]ve| have)? )?(?:noted|understood|got it|ok|okay|thanks?|thank you|sure"
    r"|alright|i see|will do|acknowledged|recorded|saved|no_reply)|好的?|收到|明白了?|了解|嗯)\W*",
    re.IGNORECASE,
)
_LEANT_ON_CHARS: Final = 600  # not measured; the subject comes first


class WantedTokens(Protocol):
    """Returns the maximum size of a block, by intent and whether tools are used."""

    def __call__(self, asks: Asks, /, *, uses_tools: bool) -> int:
        """Return the maximum size in uncalibrated tokens."""
        ...


def ask(
    visible: Sequence[Entry],
    query_result: QueryResult,
    settings: RecallSettings,
    *,
    edits: Sequence[Edit] = (),
    among_tools: bool,
    space: SpaceId,
    session: SessionId,
    now: float,
    budget_tokens: WantedTokens,
    count_tokens: Callable[[str], int],
    reads: RecallReads | None = None,
) -> RecallRequest:
    """Build a turn's request to memory. `visible` are the messages that are sent."""
    cut = _cut(edits)
    blocks = [edit for edit in edits if isinstance(edit, Insert)]
    quoted_names = [name for block in blocks if block.stage != "stand" for name in block.recalled]
    whole_keys = [key for block in blocks if block.stage == "stand" for key in block.recalled]
    summaries = [without_names(edit.summary) for edit in edits if isinstance(edit, Cut)]
    # also a message too short to search for, because "thanks" shows that the user asks nothing
    newest = next((entry for entry in reversed(visible) if _asks(entry)), None)
    last_reply = next((entry for entry in reversed(visible) if entry.role == "assistant"), None)
    text = "" if newest is None else spoken_text(newest)
    asks = what_asks(text)
    to_the_model = not _to_somebody_else(text, asks, visible)
    asks = asks if to_the_model else "other"
    leans = to_the_model and needs_context(text)
    # what the model wrote before the user's message is part of that message only if it leans on it
    works = newest is None or newest is not last_turn(visible)
    scope: RecallScope = "space" if settings.scope == "space" else "session"
    return RecallRequest(
        space=space,
        session=session,
        query=query_result.text,
        newest=text,
        asks=asks,
        refers_to=_leant_on(visible, newest) if leans else "",
        recent=_prose(last_reply) if last_reply is not None and (works or leans) else (),
        shown=frozenset(
            [key for entry in visible if entry.key not in cut for key in entry.segment_keys]
            + list(map(EntryKey, whole_keys))
        ),
        quoted=frozenset(quoted_names),
        asking=None if newest is None else newest.key,
        uses_tools=among_tools,
        shown_messages=frozenset(entry.id for entry in visible if entry.key not in cut),
        view=_Texts(
            [entry for entry in visible if entry is not last_reply and entry is not newest],
            cut,
            [block.text for block in blocks] + summaries[-1:],
        ),
        scope=scope,
        now=now,
        budget_tokens=budget_tokens(asks, uses_tools=among_tools),
        count_tokens=count_tokens,
        gated=not settings.every_turn,
        reads=reads,
    )


def _to_somebody_else(text: str, asks: Asks, visible: Sequence[Entry]) -> bool:
    speaker = speaker_of(text)
    if not speaker:
        return False
    lately = visible[-_LATELY:]
    speakers = Counter(speaker_of(spoken_text(entry)) for entry in lately if _may_ask(entry))
    if not any(speakers[name] >= _SPEAKS for name in speakers.keys() - {"", speaker}):
        return False
    # true if the user asks what all participants agreed on
    asks_all = asks == "question" and _SHARED_PAST.search(text) is not None
    to_you = asks == "question" and _YOU.search(text) is not None
    replies = [entry for entry in lately if entry.role == "assistant"]
    takes_note = len(replies) >= _SPEAKS and all(
        not entry.calls and _NOTE.fullmatch(" ".join(_prose(entry))) for entry in replies
    )
    return not asks_all and (to_you or takes_note)


def _leant_on(visible: Sequence[Entry], newest: Entry | None) -> str:
    before: list[str] = []
    for entry in reversed(visible):
        if entry is newest or not _asks(entry):
            continue
        before.append(spoken_text(entry)[:_LEANT_ON_CHARS])
        if len(before) == _MOST_LEANT_ON or not needs_context(before[-1]):
            break
    return "\n".join(reversed(before))


class _Texts(Sequence[str]):
    """The texts of several messages, read on demand."""

    def __init__(
        self,
        entries: Sequence[Entry],
        cut: Mapping[EntryKey, Mapping[int, str]],
        own: Sequence[str],
    ) -> None:
        self._entries, self._cut, self._own_texts = entries, cut, own

    @cached_property
    def _all(self) -> list[str]:
        texts = (_texts(entry, self._cut.get(entry.key, {})) for entry in self._entries)
        return [*chain.from_iterable(texts), *self._own_texts]

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]


def _may_ask(entry: Entry) -> bool:
    return entry.role == "user" and not entry.message.summary


def _asks(entry: Entry) -> bool:
    return _may_ask(entry) and bool(spoken_text(entry))


def _prose(entry: Entry) -> tuple[str, ...]:
    return tuple(part.text for part in entry.parts if isinstance(part, Text))


def _cut(edits: Sequence[Edit]) -> dict[EntryKey, dict[int, str]]:
    cut: dict[EntryKey, dict[int, str]] = {}
    for edit in edits:
        if isinstance(edit, Shorten):
            cut.setdefault(edit.anchor, {})[edit.part] = edit.text
        elif isinstance(edit, LeaveOut) and edit.part is not None:
            cut.setdefault(edit.anchor, {})[edit.part] = ""
    return cut


def _texts(entry: Entry, cut: Mapping[int, str]) -> Iterator[str]:
    for index, part in enumerate(entry.parts):
        if index in cut:
            yield cut[index]
        elif isinstance(part, Text | ToolResult):
            yield part.text
        elif isinstance(part, ToolCall):
            yield part.arguments


def queries_of(request: RecallRequest) -> Queries:
    """Return a request's question, the types of facts to list, and the query without vectors."""
    reads = request.reads
    if reads is not None and reads.queries is not None and reads.queries[0] is request:
        return cast(Queries, reads.queries[1])
    question = read_question(
        question_text(request), asked_at=request.now, newest=request.newest, asks=request.asks
    )
    types = types_asked(request, question)
    if types:  # in "list all decisions", do not search for "list"
        kept_words = tuple([word for word in question.words if word not in LISTING_WORDS])
        question = replace(question, words=kept_words)
    limit = count_wanted_passages(request) * _CANDIDATE_MULTIPLIER
    # search for more passages, because some of those found are quoted in the view already
    limit += len(request.quoted) - len(request.quoted_whole)
    lost_words = find_lost_words(request) if request.gated else ()
    candidate_query = CandidateQuery(
        words=tuple(dict.fromkeys((*question.words, *question.marks, *lost_words))),
        lexical_limit=limit, vector_limit=limit, with_files=True,
        leave_out=segments_in_view(request),
        session=request.session if request.scope == "session" else None,
        said_after=request.said_after, said_before=request.said_before,
    )  # fmt: skip
    queries = question, types, candidate_query
    if reads is not None:
        reads.queries = request, queries
    return queries


def count_wanted_passages(request: RecallRequest) -> int:
    return max(_LEAST_WANTED, request.budget_tokens // PASSAGE_TOKENS)


_SPACES = re.compile(r"\s{2,}")


async def phrase(text: str, archive: Archive, next_for: RecallRequest | None = None) -> str:
    """Return a question's text without the names of speakers in this memory, for embedding. A name
    makes a question similar to each message with it (measured). Callers mask secrets first. The
    store reads what the search for `next_for` needs in the same round trip."""
    names = speaker_names_asked(text)
    if not names:
        return text
    words = {speaker_word(name): name for name in names}
    query = CandidateQuery() if next_for is None else queries_of(next_for)[2]
    query = replace(query, words=(*words, *query.words), lexical_limit=0, vector_limit=0)
    frequencies = (await archive.candidates(query)).document_frequencies
    speaking = [name for word, name in words.items() if frequencies.get(word, 0) >= SPEAKS_FROM]
    if not speaking:
        return text
    name_pattern = "|".join(re.escape(name) for name in sorted(speaking, key=len, reverse=True))
    text_without_names = re.sub(rf"(?<!\w)(?:{name_pattern})(?:['’]s)?(?!\w)", " ", text)
    return _SPACES.sub(" ", text_without_names).strip() or text
