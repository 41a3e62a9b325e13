"""Takes exact names and values (probes) from messages that a compaction will cut, and checks
whether a text contains one. Of tool output only paths, addresses, hashes and errors are taken,
because the text of a fetched page must not become a rule."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Final, TypeVar

from recollect.core.compaction.ask import MessageText, Speaker, utterances
from recollect.core.rules.text import SENTENCE_CHARS, excerpt_around, one_line, sentence_spans
from recollect.core.search.identifiers import exact_things
from recollect.core.search.question import substance
from recollect.core.search.statements import (
    is_error_line,
    is_looking,
    statement_kind,
    tells_the_error,
)
from recollect.core.search.tokenize import tokenize
from recollect.core.values.compaction import Probe, ProbeKind
from recollect.core.values.history import Entry

T = TypeVar("T")

WORDED: Final[frozenset[ProbeKind]] = frozenset(
    {"error", "decision", "constraint", "task", "attempt"}
)
WORDS_SHARE: Final = 0.6
"""Not measured; a summary that says the same in other words keeps most words that carry meaning."""
_NEGATION: Final = re.compile(
    r"\b(?:not|never|no|none|without|cannot|nor|avoid|forbid(?:den)?|fail(?:s|ed|ure)?|broken|\w+n't)\b"
    r"|不|没|禁|勿",
    re.IGNORECASE,
)
_CACHED_TEXTS: Final = 64
"""A summary is compared with up to `MAX_PROBES` probes in a row."""

MAX_PROBES: Final = 120
"""Bounds the searches in memory of one receipt (`ALL_RECALLS_SECONDS`)."""
_OF_TOOLS: Final[frozenset[ProbeKind]] = frozenset({"path", "url", "hash"})
_STATEMENT_CHARS: Final = 180
"""Not measured; a sentence, without the paragraph around it."""
_MAX_ERRORS: Final = 2
"""Not measured; further errors of the same message are mostly consequences of the first ones."""
_COMMAND_CHARS: Final = 140
"""Not measured; a longer command is a script, which nobody repeats word for word."""
_NEIGHBOUR_CHARS: Final = 100
"""Not measured; enough of the sentence before to search for a sentence that is only a name."""
_STRETCHES: Final = 8
"""Not measured; takes probes from every eighth of the history, not only from its end."""
_MAX_REPEAT_POINTS: Final = 2.0
"""Not measured; a detail in four messages counts as much as one in a hundred."""
_KIND_WEIGHT: Final[dict[ProbeKind, float]] = {
    "constraint": 4.0,
    "decision": 3.5,
    "task": 3.5,
    "attempt": 3.0,
    "error": 2.0,
    "command": 1.5,
    "path": 1.5,
    "hash": 1.5,
    "url": 1.5,
    "number": 1.0,
    "symbol": 0.9,
}
_LAID_DOWN: Final[frozenset[ProbeKind]] = frozenset({"constraint", "decision"})
_SPEAKER_WEIGHT: Final[dict[Speaker, float]] = {
    "user": 3.0,
    "assistant": 1.5,
    "call": 0.5,
    "tool": 0.0,
}


def contains(text: str, probe: Probe) -> bool:
    """Return whether the text contains the probe's name or value, or states it in similar words."""
    return contains_literally(text, probe) or (probe.kind in WORDED and _in_words(text, probe))


def without_texts(sentence: str, texts: tuple[str, ...]) -> str:
    left_text = " ".join(sentence.split())
    for text in sorted(texts, key=len, reverse=True):
        pattern = r"\s+".join(map(re.escape, text.split()))
        left_text = re.sub(pattern, " ", left_text, flags=re.IGNORECASE)
    return " ".join(left_text.split())


def contains_literally(text: str, probe: Probe) -> bool:
    sought_text = " ".join(probe.text.split())
    if not sought_text:
        return False
    normal_text = _normalise(text)
    if probe.kind == "command":  # in a stored call, quotes are escaped
        sought_text, normal_text = sought_text.replace("\\", ""), normal_text.replace("\\", "")
    if probe.kind == "hash" or probe.kind in WORDED:
        sought_text, normal_text = sought_text.casefold(), normal_text.casefold()
    digits = probe.kind == "number"
    offset = normal_text.find(sought_text)
    while offset >= 0:
        if stands_alone(normal_text, offset, offset + len(sought_text), number=digits):
            return True
        offset = normal_text.find(sought_text, offset + 1)
    return False


def stands_alone(text: str, start: int, end: int, *, number: bool = False) -> bool:
    """Return whether this span of a text is no part of a longer word or number."""
    before, after = text[start - 1 : start], text[end : end + 1]
    if _wordy(before) and _wordy(text[start]):
        return False
    if _wordy(after) and _wordy(text[end - 1]):
        return False
    if not number:
        return True
    return not (
        (after in {".", ","} and text[end + 1 : end + 2].isdigit())
        or (before in {".", ","} and text[start - 2 : start - 1].isdigit())
    )


def _wordy(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def _in_words(text: str, probe: Probe) -> bool:
    words = content_words(probe.text)
    if not words:
        return False
    exact = [thing.text.casefold() for thing in exact_things(probe.text)]
    negated = _NEGATION.search(probe.text) is not None
    for stretch, stretch_words in _stretches(text):
        if len(words & stretch_words) < WORDS_SHARE * len(words):
            continue
        if negated and not _NEGATION.search(stretch):
            continue
        if all(text in stretch.casefold() for text in exact):
            return True
    return False


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that carry meaning; empty if they are too common for a search."""
    return frozenset(substance(text, tuple(tokenize(text))))


@lru_cache(maxsize=_CACHED_TEXTS)
def _normalise(text: str) -> str:
    return " ".join(text.split())


@lru_cache(maxsize=_CACHED_TEXTS)
def _stretches(text: str) -> tuple[tuple[str, frozenset[str]], ...]:
    lines = [line for line in text.splitlines() if line.strip()] + [""]
    words = [content_words(line) for line in lines]
    return tuple(
        (f"{lines[index]}\n{lines[index + 1]}", words[index] | words[index + 1])
        for index in range(len(lines) - 1)
    )


@dataclass(slots=True)
class _ProbeCandidate:
    utterance: MessageText = field(repr=False)
    kind: ProbeKind
    text: str = field(repr=False)
    start: int
    end: int
    places: frozenset[int]

    def importance(self, last_place: int) -> float:
        """Return a weight, higher for probes that the user stated, repeated or stated lately."""
        return (
            _KIND_WEIGHT[self.kind]
            + _SPEAKER_WEIGHT[self.utterance.speaker]
            + min(math.log2(len(self.places)), _MAX_REPEAT_POINTS)
            + max(self.places) / max(last_place, 1)
        )


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """The probes of a compaction, and the number of details that they were chosen from."""

    probes: tuple[Probe, ...] = field(repr=False)
    details: int


def probe(
    entries: Sequence[Entry], *, previous_summary: str = "", limit: int = MAX_PROBES
) -> ProbeSample:
    """Choose at most `limit` probes from these messages and the previous summary."""
    candidates: dict[tuple[str, str], _ProbeCandidate] = {}
    for text in utterances(entries, previous_summary):
        for candidate in _find_candidates(text):
            _add(candidates, candidate)
    last = len(entries)
    sample = _spread(candidates.values(), last)[:limit]
    sample.sort(
        key=lambda candidate: (
            -candidate.importance(last),
            candidate.utterance.place,
            candidate.start,
            candidate.text,
        )
    )
    return ProbeSample(tuple(map(_probe_of, sample)), details=len(candidates))


_MIN_NEW_WORDS: Final = {"user": 3, "assistant": 4}
_NEW_WORDS_SHARE: Final = 0.4
"""A message with so many words, and this share of its words, that neither the routine nor the
summary has, says something new. Chosen on invented quiet sessions and single alarms in them."""
_ROUTINE_USES: Final = 2  # a command that ran once is no routine; not measured
_ROUTINE_SHARE: Final = 0.1
"""Words of more messages are routine. Not measured; a user may give an order twice."""


def lacks_probe(summary: str, entries: Sequence[Entry]) -> bool:
    """Return whether the messages state something that the summary lacks. Numbers that only the
    assistant states do not count: a quiet day of monitoring is full of readings."""
    by_user = {entry.key for entry in entries if entry.role == "user"}
    return _says_something_new(summary, entries) or any(
        not contains(summary, detail)
        for detail in probe(entries).probes
        if detail.kind != "number" or detail.key in by_user
    )


def _says_something_new(summary: str, entries: Sequence[Entry]) -> bool:
    """Return whether a message differs in its words from all others, which repeat each other in a
    quiet session: an order or an alarm may be none of the kinds of details."""
    spoken = [
        (message.speaker, frozenset(filter(str.isalpha, content_words(message.text))))
        for message in utterances(entries, "")
        if message.speaker in _MIN_NEW_WORDS
    ]
    uses = Counter(word for _, words in spoken for word in words)
    routine = max(_ROUTINE_USES, len(spoken) * _ROUTINE_SHARE)
    known = {word for word, count in uses.items() if count > routine} | content_words(summary)
    return any(
        len(words - known) >= max(_MIN_NEW_WORDS[speaker], _NEW_WORDS_SHARE * len(words))
        for speaker, words in spoken
    )


def _find_candidates(message_text: MessageText) -> Iterator[_ProbeCandidate]:
    places = frozenset({message_text.place})
    make_candidate = partial(_ProbeCandidate, message_text, places=places)
    by_tool = message_text.speaker in ("call", "tool")
    if message_text.failed_call and (error := tells_the_error(message_text.text)):
        start = message_text.text.find(error)
        text = excerpt_around(one_line(error), 0, 0, _STATEMENT_CHARS)
        yield make_candidate("attempt", text, start, start + len(error))
    command = message_text.command
    if 0 < len(command) <= _COMMAND_CHARS and "\n" not in command and not is_looking(command):
        start = max(message_text.text.find(command), 0)
        yield make_candidate("command", command, start, start + len(command))
    fenced, errors = False, 0
    for start, end in sentence_spans(message_text.text):
        sentence = message_text.text[start:end]
        if sentence.startswith("```"):
            fenced = not fenced
            continue
        kind = _kind_of_sentence(sentence, message_text) if not fenced or by_tool else None
        errors += kind == "error"
        if kind is not None and errors <= _MAX_ERRORS:
            yield make_candidate(
                kind, excerpt_around(one_line(sentence), 0, 0, _STATEMENT_CHARS), start, end
            )
        for thing in exact_things(sentence):
            if not by_tool or thing.kind in _OF_TOOLS:
                yield make_candidate(thing.kind, thing.text, start + thing.start, start + thing.end)


def _kind_of_sentence(sentence: str, text: MessageText) -> ProbeKind | None:
    if text.speaker == "call" or text.failed_call:
        return None
    if is_error_line(sentence):
        return "error"
    if text.speaker == "tool":
        return None
    return statement_kind(sentence, by_user=text.speaker == "user")


def _add(candidates: dict[tuple[str, str], _ProbeCandidate], candidate: _ProbeCandidate) -> None:
    group = "worded" if candidate.kind in WORDED else candidate.kind
    name = (group, " ".join(candidate.text.split()).casefold())
    known = candidates.setdefault(name, candidate)
    weight = _SPEAKER_WEIGHT[candidate.utterance.speaker]
    known.places = candidate.places = known.places | candidate.places
    if weight >= _SPEAKER_WEIGHT[known.utterance.speaker]:
        candidates[name] = candidate


def _spread(candidates: Iterable[_ProbeCandidate], last_place: int) -> list[_ProbeCandidate]:
    """Order candidates so that every kind and every part of the history gets a share. Symbols come
    last: most are constants of code that was shown, and were most of the checked details."""
    kinds: dict[ProbeKind, dict[int, list[_ProbeCandidate]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for candidate in candidates:
        stretch = candidate.utterance.place * _STRETCHES // (last_place + 1)
        kinds[candidate.kind][stretch].append(candidate)

    def order(candidate: _ProbeCandidate) -> tuple[float, int, str]:
        return -candidate.importance(last_place), candidate.start, candidate.text

    in_turns: list[list[_ProbeCandidate]] = []
    for kind in sorted(kinds, key=lambda kind: -_KIND_WEIGHT[kind]):
        stretches = sorted(kinds[kind].items(), reverse=True)
        in_turns.append(take_turns([sorted(stretch, key=order) for _, stretch in stretches]))
    symbols = in_turns.pop() if "symbol" in kinds else []
    return [*take_turns(in_turns), *symbols]


def take_turns(lists: Iterable[Sequence[T]]) -> list[T]:
    """Return the first item of each list, then the second ones, and so on."""
    return [item for turn in zip_longest(*lists) for item in turn if item is not None]


def _probe_of(candidate: _ProbeCandidate) -> Probe:
    return Probe(
        kind=candidate.kind,
        text=candidate.text,
        sentence=_sentence_around(candidate),
        source=candidate.utterance.source,
        key=candidate.utterance.key,
        stands=candidate.kind in _LAID_DOWN and candidate.utterance.speaker == "user",
    )


def _sentence_around(candidate: _ProbeCandidate) -> str:
    text = candidate.utterance.text
    if candidate.kind == "command":  # of which no sentence tells: its words without values
        words = [word for word in candidate.text.split() if word.isalpha()]
        return " ".join([one_line(candidate.utterance.before)[-_NEIGHBOUR_CHARS:], *words]).strip()
    spans = list(sentence_spans(text))
    index = next(
        index for index, (start, end) in enumerate(spans) if start <= candidate.start < end
    )
    start, end = spans[index]
    sentence = one_line(text[start:end])
    offset = max(sentence.find(candidate.text), 0)
    sentence = excerpt_around(sentence, offset, len(candidate.text))
    if candidate.utterance.failed_call:
        return f"{candidate.utterance.failed_call}: {candidate.text}"[:SENTENCE_CHARS]
    if content_words(without_texts(sentence, (candidate.text,))):
        return sentence
    sentence = excerpt_around(
        sentence, sentence.find(candidate.text), len(candidate.text), _STATEMENT_CHARS
    )
    sentence_after = text[slice(*spans[index + 1])] if index + 1 < len(spans) else ""
    sentence_before = text[slice(*spans[index - 1])] if index else ""
    if not content_words(f"{sentence_before} {sentence_after}"):
        sentence_before = candidate.utterance.before
    parts = (
        one_line(sentence_before)[-_NEIGHBOUR_CHARS:],
        sentence,
        one_line(sentence_after)[: SENTENCE_CHARS - _STATEMENT_CHARS - _NEIGHBOUR_CHARS],
    )
    return " ".join(part for part in parts if part)
