"""Takes probes from what is about to be cut, and says whether a text holds one.

A probe is an exact thing that was known there. What people and the model said comes first; of a
tool's output only paths, addresses, hashes and errors are asked about, never what it says in words:
a page that a tool fetched must not become a constraint. Exact things must stand in a text
literally; what was settled in words must stand there in words enough, with a "not" where it says
"not". Always holds: the same messages give the same probes, the most important first, each thing
once; nothing is called held that a reader could not find; the time is linear in the messages.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import Final

from recollect.compaction.lines import Speaker, Speech, speeches
from recollect.rules.text import SENTENCE_CHARS, bounded, one_line, sentence_spans
from recollect.search.question import substance
from recollect.search.statements import is_error_line, statement_kind, tells_the_error
from recollect.search.tokenize import tokenize
from recollect.values.compaction import Probe, ProbeKind
from recollect.values.history import Entry

_FILE_ENDINGS: Final = (
    "py|pyi|ipynb|js|jsx|mjs|cjs|ts|tsx|json|jsonl|toml|ya?ml|ini|cfg|conf|env|lock|md|rst|txt|csv"
    "|tsv|html?|css|scss|svg|xml|sql|db|sqlite|sh|bash|zsh|ps1|bat|c|h|cc|cpp|hpp|cs|go|rs|java|kt"
    "|swift|rb|php|lua|r|jl|scala|vue|svelte|proto|tf|gradle|log|png|jpe?g|gif|pdf|docx?|xlsx?"
    "|zip|gz|tar|whl|so|dll|exe|bin|onnx|gguf|parquet|service|patch|diff"
)
_HOST_ENDINGS: Final = "com|org|net|io|dev|ai|app|edu|gov|internal|local"
_UNITS: Final = (
    r"%|°C|°F|[kKMGT]i?B\b|[kMG]?Hz\b|[mµn]s\b|s\b|secs?\b|seconds?\b|mins?\b|minutes?\b|hours?\b|h\b"
    r"|days?\b|weeks?\b|months?\b|years?\b|px\b|rpm\b|rps\b|qps\b|tokens?\b|rows?\b|bytes?\b|lines?\b"
    r"|users?\b|requests?\b|items?\b|retries\b|workers?\b|threads?\b|replicas?\b|kg\b|km\b|cm\b|mm\b"
    r"|USD\b|EUR\b|GBP\b|CHF\b|dollars?\b|euros?\b"
)

_SHAPES: Final = re.compile(
    rf"""
    (?P<url>[A-Za-z][A-Za-z0-9+.-]{{1,12}}://[^\s"'<>()\[\]{{}}`|]{{3,300}}
        |\b(?:[A-Za-z0-9-]{{2,40}}\.){{1,4}}(?:{_HOST_ENDINGS})\b(?![\w(])(?::\d{{2,5}})?)
    |(?P<path>(?<![\w/])(?:~/|\.{{1,2}}/|/)?(?:[\w@.+-]{{1,80}}/){{1,20}}[\w@.+*-]{{1,80}}/?
        |(?<!\w)(?:[A-Za-z]:|\.{{1,2}})\\(?:[\w@.+-]{{1,80}}\\){{0,20}}[\w@.+-]{{1,80}}
        |(?<![\w.])[\w-]{{1,80}}(?:\.[\w-]{{1,40}}){{0,3}}\.(?:{_FILE_ENDINGS})\b(?![\w(]))
    |(?P<hash>\b[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}\b
        |\b0x[0-9a-fA-F]{{4,64}}\b
        |\b(?=[0-9a-f]{{0,127}}\d)(?=[0-9a-f]{{0,127}}[a-f])[0-9a-f]{{7,128}}\b
        |\b(?=[0-9A-F]{{0,127}}\d)(?=[0-9A-F]{{0,127}}[A-F])[0-9A-F]{{7,128}}\b)
    |(?P<port>(?<=port\ )\d{{2,5}}\b|(?<=localhost:)\d{{2,5}}\b|(?<=\d\.\d:)\d{{2,5}}\b)
    |(?P<number>(?<![\w.-])v?\d{{1,4}}\.\d{{1,5}}(?:\.\d{{1,6}}){{1,3}}(?:[-+][\w.]{{1,20}})?\b
        |(?<![\w.-])\d{{4}}-\d{{2}}-\d{{2}}(?:T[\d:.]{{4,15}}Z?)?\b
        |[$€£]\s?\d[\d.,]{{0,15}}\d?[kKmM]?\b
        |(?<![\w.,-])\d[\d,_.]{{0,20}}\s?(?:{_UNITS})
        |(?<![\w.,-])\d[\d,_]{{2,20}}\d(?:\.\d{{1,12}})?\b(?![-/]\d)
        |(?<![\w.,-])\d{{1,8}}\.\d{{3,12}}\b)
    |(?P<symbol>\b[A-Za-z_$][\w$]{{0,60}}(?:(?:\.|::|->)[A-Za-z_$][\w$]{{1,60}}){{1,8}}(?:\(\))?
        |\b[A-Za-z$]\w{{0,60}}_\w{{1,60}}\b(?:\(\))?|\b_\w{{3,60}}\b
        |\b[a-z][a-z0-9]{{0,40}}[A-Z]\w{{0,60}}\b(?:\(\))?
        |\b[A-Z][a-z0-9]{{1,40}}[A-Z]\w{{0,60}}\b(?:\(\))?
        |\b[a-z]\w{{2,60}}\(\)
        |\bE[A-Z]{{4,20}}\b|\b[A-Z]{{2,8}}-\d{{1,8}}(?:-\w{{1,20}}){{0,4}}\b|(?<!\w)\#\d{{2,8}}\b
        |(?<![\w-])--[a-z][\w-]{{2,40}})
    """,
    re.VERBOSE | re.ASCII,
)
# What has such a shape and is none: and/or, 7/22, U.S., a sentence without a space behind its end.
_PLAIN: Final = re.compile(
    r"[A-Za-z][a-z]*(?:/[A-Za-z][a-z]*){1,2}|[A-Z][A-Za-z]*(?:/[A-Za-z]+){1,3}|\d{1,4}(?:[/-]\d{1,4}){1,2}"
    r"|(?:[A-Za-z]\.)+[A-Za-z]?|[a-z]+\.[A-Z][a-z]+|(?:19|20)\d\d"
)
_BRAND_LINES: Final = """
GitHub GitLab JavaScript TypeScript OpenAI PostgreSQL MySQL MongoDB YouTube LinkedIn WhatsApp
iPhone iPad macOS iOS JetBrains PyPI DevOps FastAPI GraphQL NumPy
"""
_BRANDS: Final = frozenset(_BRAND_LINES.split())
_KINDS: Final[dict[str, ProbeKind]] = {
    "url": "url",
    "path": "path",
    "hash": "hash",
    "port": "number",
    "number": "number",
    "symbol": "symbol",
}
_LEAST_CHARS: Final = {"path": 3, "url": 6, "hash": 6, "port": 2, "number": 2, "symbol": 4}
_LEAST_DIGITS: Final = 4
_UNIT_END: Final = re.compile(rf"\d\s?(?:{_UNITS})$")
_RUNS: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactThing:
    """Something exact in a text, and where it stands."""

    kind: ProbeKind
    text: str = field(repr=False)
    start: int
    end: int


def exact_things(text: str) -> Iterator[ExactThing]:
    """What is exact in a text, in its order."""
    done = 0
    for run in _RUNS.finditer(text):
        if run.start() < done or _plain_word(run[0]):
            continue
        # a number may have its unit behind a space; nothing else reaches over one
        until = min(len(text), run.end() + 12) if run[0][-1].isdigit() else run.end()
        for found in _SHAPES.finditer(text, run.start(), until):
            if found.start() >= run.end() or found.start() < done:
                continue
            thing = _thing(found)
            if thing is not None:
                done = thing.end
                yield thing


def _plain_word(run: str) -> bool:
    """A word that no shape can match, as most are: each asks for a sign, a digit or a capital."""
    word = run.rstrip(".,;:!?")
    return word.isalpha() and (word[1:] or "a").islower()


def _thing(found: re.Match[str]) -> ExactThing | None:
    kind = found.lastgroup
    written = found[0].rstrip(".,:;")
    if kind is None or len(written) < _LEAST_CHARS[kind]:
        return None
    if _PLAIN.fullmatch(written) or written.removesuffix("()") in _BRANDS:
        return None
    if kind == "number" and not _tells(written):
        return None
    start = found.start()
    return ExactThing(kind=_KINDS[kind], text=written, start=start, end=start + len(written))


def _tells(number: str) -> bool:
    """Whether a number says more than a count: a unit, a sign of money, a version, four digits."""
    if number[0] in "$€£" or _UNIT_END.search(number):
        return True
    digits = "".join(sign for sign in number if sign.isdigit()).lstrip("0")
    return len(digits) >= _LEAST_DIGITS or number.count(".") > 1 or number[0] == "v"


WORDED: Final[frozenset[ProbeKind]] = frozenset(
    {"error", "decision", "constraint", "task", "attempt"}
)
"""Kinds that are known by their words; the others by their spelling."""
WORDS_SHARE: Final = 0.6
"""Of a statement's content words, so many have to stand together for it to be held: ours, the
least at which a statement with another verb or object is not taken for it (test_receipt.py)."""
_NEGATION: Final = re.compile(
    r"\b(?:not|never|no|none|without|cannot|nor|avoid|forbid(?:den)?|fail(?:s|ed|ure)?|broken|\w+n't)\b"
    r"|不|没|禁|勿",
    re.IGNORECASE,
)
_KNOWN_TEXTS: Final = 64


def holds(text: str, probe: Probe) -> bool:
    """Whether a reader of the text finds what the probe asks for."""
    return holds_literally(text, probe) or (probe.kind in WORDED and _in_words(text, probe))


def without(sentence: str, texts: tuple[str, ...]) -> str:
    """A sentence with these texts masked."""
    masked = " ".join(sentence.split())
    for text in sorted(texts, key=len, reverse=True):
        wanted = r"\s+".join(map(re.escape, text.split()))
        masked = re.sub(wanted, " ", masked, flags=re.IGNORECASE)
    return " ".join(masked.split())


def says_something(text: str) -> bool:
    """Whether memory can be asked by this: it is about something."""
    return bool(substance(text, tuple(tokenize(text))))


def holds_literally(text: str, probe: Probe) -> bool:
    """Whether the probe stands in the text as it is spelled."""
    wanted = " ".join(probe.text.split())
    if not wanted:
        return False
    within = _normalised(text)
    if probe.kind == "hash" or probe.kind in WORDED:
        wanted, within = wanted.casefold(), within.casefold()
    digits = probe.kind == "number"
    at = within.find(wanted)
    while at >= 0:
        if _stands_alone(within, at, at + len(wanted), number=digits):
            return True
        at = within.find(wanted, at + 1)
    return False


def _stands_alone(text: str, start: int, end: int, *, number: bool) -> bool:
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
    for said, held in _stretches(text):
        if len(words & held) < WORDS_SHARE * len(words):
            continue
        if negated and not _NEGATION.search(said):
            continue
        if all(one in said.casefold() for one in exact):
            return True
    return False


def content_words(text: str) -> frozenset[str]:
    """The words of a statement that it is about."""
    return frozenset(substance(text, tuple(tokenize(text))))


@lru_cache(maxsize=_KNOWN_TEXTS)
def _normalised(text: str) -> str:
    return " ".join(text.split())


@lru_cache(maxsize=_KNOWN_TEXTS)
def _stretches(text: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Each line together with the one behind it, and its words."""
    return tuple(_two_lines(text))


def _two_lines(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    lines = [line for line in text.splitlines() if line.strip()]
    words = [content_words(line) for line in lines]
    for at, line in enumerate(lines):
        behind = lines[at + 1] if at + 1 < len(lines) else ""
        also = words[at + 1] if at + 1 < len(lines) else frozenset()
        yield f"{line}\n{behind}", words[at] | also


MOST_PROBES: Final = 120
"""Ours: each is one line of a receipt, and about half of them cost a search."""

_OF_TOOLS: Final[frozenset[ProbeKind]] = frozenset({"path", "url", "hash"})
_STATEMENT_CHARS: Final = 180
"""A statement is kept so far: what stands around it needs room, too."""
_MOST_ERRORS: Final = 2
"""Of one text: where a build tells hundreds, the rest follow from the first."""
_NEIGHBOUR_CHARS: Final = 100
_STRETCHES: Final = 8
"""The history is looked at in so many stretches, so that none is passed over."""

_MOST_FOR_REPEATS: Final = 2.0
_KIND_WEIGHT: Final[dict[ProbeKind, float]] = {
    "constraint": 4.0,
    "decision": 3.5,
    "task": 3.5,
    "attempt": 3.0,
    "error": 2.0,
    "path": 1.5,
    "hash": 1.5,
    "url": 1.5,
    "number": 1.0,
    "symbol": 1.0,
}
_LAID_DOWN: Final[frozenset[ProbeKind]] = frozenset({"constraint", "decision"})
_SPEAKER_WEIGHT: Final[dict[Speaker, float]] = {
    "user": 3.0,
    "assistant": 1.5,
    "call": 0.5,
    "tool": 0.0,
}


@dataclass(slots=True, kw_only=True)
class _Found:
    """Something that may become a probe: where it was said best, and how often in all."""

    kind: ProbeKind
    text: str = field(repr=False)
    said: Speech = field(repr=False)
    start: int
    end: int
    places: set[int]

    def importance(self, last_place: int) -> float:
        """Said by the user, said again, said lately."""
        return (
            _KIND_WEIGHT[self.kind]
            + _SPEAKER_WEIGHT[self.said.speaker]
            + min(math.log2(len(self.places)), _MOST_FOR_REPEATS)
            + max(self.places) / max(last_place, 1)
        )


def probe(
    entries: Sequence[Entry], *, previous_summary: str = "", limit: int = MOST_PROBES
) -> tuple[Probe, ...]:
    """At most `limit` probes of these messages, and of the summary that stood before them."""
    found: dict[tuple[str, str], _Found] = {}
    for said in speeches(entries, previous_summary):
        for one in _in_speech(said):
            _add(found, one)
    last = len(entries)
    chosen = _spread(found.values(), last)[:limit]
    chosen.sort(key=lambda one: (-one.importance(last), one.said.place, one.start, one.text))
    return tuple(map(_probe_of, chosen))


def _in_speech(said: Speech) -> Iterator[_Found]:
    def made(kind: ProbeKind, text: str, start: int, end: int) -> _Found:
        return _Found(kind=kind, text=text, said=said, start=start, end=end, places={said.place})

    by_tool = said.speaker in ("call", "tool")
    if said.failed_call and (told := tells_the_error(said.text)):
        start = said.text.find(told)
        text = bounded(one_line(told), 0, 0, _STATEMENT_CHARS)
        yield made("attempt", text, start, start + len(told))
    fenced, errors = False, 0
    for start, end in sentence_spans(said.text):
        sentence = said.text[start:end]
        if sentence.startswith("```"):
            fenced = not fenced
            continue
        kind = _worded(sentence, said) if not fenced or by_tool else None
        errors += kind == "error"
        if kind is not None and errors <= _MOST_ERRORS:
            yield made(kind, bounded(one_line(sentence), 0, 0, _STATEMENT_CHARS), start, end)
        for thing in exact_things(sentence):
            if not by_tool or thing.kind in _OF_TOOLS:
                yield made(thing.kind, thing.text, start + thing.start, start + thing.end)


def _worded(sentence: str, said: Speech) -> ProbeKind | None:
    """What a sentence settles; of a tool's, whether it tells an error."""
    if said.speaker == "call" or said.failed_call:
        return None
    if is_error_line(sentence):
        return "error"
    if said.speaker == "tool":
        return None
    return statement_kind(sentence, by_user=said.speaker == "user")


def _add(found: dict[tuple[str, str], _Found], one: _Found) -> None:
    """Each thing once, where the one said it who counts most; of those the newest."""
    exact = one.kind if one.kind in ("path", "url", "symbol", "hash", "number") else "worded"
    name = (exact, " ".join(one.text.split()).casefold())
    known = found.get(name)
    if known is None:
        found[name] = one
        return
    known.places |= one.places
    if _SPEAKER_WEIGHT[one.said.speaker] >= _SPEAKER_WEIGHT[known.said.speaker]:
        one.places = known.places
        found[name] = one


def _spread(found: Iterable[_Found], last_place: int) -> list[_Found]:
    """Taken in turns: from every kind, and of each kind from every stretch of the history."""
    kinds: dict[ProbeKind, dict[int, list[_Found]]] = defaultdict(lambda: defaultdict(list))
    for one in found:
        stretch = one.said.place * _STRETCHES // (last_place + 1)
        kinds[one.kind][stretch].append(one)
    in_turns: list[list[_Found]] = []
    for kind in sorted(kinds, key=lambda kind: -_KIND_WEIGHT[kind]):
        stretches = [
            sorted(held, key=lambda one: (-one.importance(last_place), one.start, one.text))
            for _, held in sorted(kinds[kind].items(), reverse=True)
        ]
        in_turns.append(_in_turns(stretches))
    return _in_turns(in_turns)


def _in_turns(lists: Sequence[Sequence[_Found]]) -> list[_Found]:
    return [one for turn in zip_longest(*lists) for one in turn if one is not None]


def _probe_of(one: _Found) -> Probe:
    return Probe(
        kind=one.kind,
        text=one.text,
        sentence=_sentence_around(one),
        source=one.said.source,
        key=one.said.key,
        stands=one.kind in _LAID_DOWN and one.said.speaker == "user",
    )


def _sentence_around(one: _Found) -> str:
    """The sentence that holds it; with its neighbours where it says nothing besides."""
    text = one.said.text
    spans = list(sentence_spans(text))
    at = next(at for at, (start, end) in enumerate(spans) if start <= one.start < end)
    start, end = spans[at]
    sentence = one_line(text[start:end])
    where = max(sentence.find(one.text), 0)
    sentence = bounded(sentence, where, len(one.text))
    if one.said.failed_call:
        return f"{one.said.failed_call}: {one.text}"[:SENTENCE_CHARS]
    if says_something(without(sentence, (one.text,))):
        return sentence
    sentence = bounded(sentence, sentence.find(one.text), len(one.text), _STATEMENT_CHARS)
    behind = text[slice(*spans[at + 1])] if at + 1 < len(spans) else ""
    ahead = text[slice(*spans[at - 1])] if at else ""
    if not says_something(f"{ahead} {behind}"):
        ahead = one.said.before
    parts = (
        one_line(ahead)[-_NEIGHBOUR_CHARS:],
        sentence,
        one_line(behind)[: SENTENCE_CHARS - _STATEMENT_CHARS - _NEIGHBOUR_CHARS],
    )
    return " ".join(part for part in parts if part)
