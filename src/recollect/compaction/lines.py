"""Puts behind a summary the lines that tell about the things that were cut.

A name alone says nothing about its thing. The line that brought it up, said what was found out,
what failed or what was decided, is what a later message relies on: on real transcripts it is there
several times as often as with lists of names, for as many tokens (docs/figures_cost.md).

Three steps. `rank_names`: which things a view should not be without, by who named them and how
often; what was ranked before counts on, and fades. `gather_lines`: the lines of what is cut, and
of those carried before, that say most about them, best first. `tell`: as many of them as there is
room for, none that the summary says already. Also owns `speeches`: who said what in messages, for
these lines and for probes. Reads masked text only. Must never show what stands in a recalled
block, a thought or a `/compact` command. Always holds: bounded, each line once, word for word but
for its length and our own tags; the same entries give the same lines; linear in the entries.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from recollect.compaction.chunks import HEADINGS
from recollect.compaction.render import consumed, defuse
from recollect.formats.summaries import (
    LINES_TAG,
    PINNED_HEADING,
    PINNED_LINE,
    PINNED_NOTE,
    part_pinned,
)
from recollect.rules.noise import strip_channel_prefix
from recollect.rules.text import bounded, one_line, sentence_spans, without_recalled_blocks
from recollect.search.identifiers import shapes_in
from recollect.search.tokenize import STOP_WORDS
from recollect.values.edit import QuotedLine
from recollect.values.history import Entry
from recollect.values.message import CallId, EntryKey, MessageId, Text, ToolCall, ToolResult

Speaker: TypeAlias = Literal["user", "assistant", "call", "tool"]

FROM_SUMMARY: Final = MessageId("")
"""The source of what stood in the summary before."""
_HEAD_CHARS: Final = {"user": 40_000, "assistant": 40_000, "call": 12_000, "tool": 12_000}
_TAIL_CHARS: Final = 4_000
"""Ours: a million tokens are read within seconds, and what a person writes is read whole."""
_CALL_CHARS: Final = 160
_PINNED: Final = PINNED_HEADING.lstrip("#")
_MOST_DEPTH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One text of a message."""

    speaker: Speaker
    text: str = field(repr=False)
    place: int
    """Which message it is of, from 1; 0 is the summary before."""
    source: MessageId
    key: EntryKey
    before: str = field(default="", repr=False)
    """What people or the model said last before it."""
    failed_call: str = field(default="", repr=False)
    """It is an error's text: the call that led to it."""


def speeches(
    entries: Sequence[Entry], previous_summary: str = "", *, least_chars: int = 0
) -> Iterator[Speech]:
    """What was said, the summary before first; of each text at least so much of its head."""
    before = previous_summary
    told, pinned = part_pinned(previous_summary)
    # what was pinned was somebody's own words, mostly the user's
    parts: tuple[tuple[Speaker, str], ...] = (("assistant", told), ("user", pinned))
    for speaker, text in parts:
        if text.strip():
            yield Speech(
                speaker=speaker,
                text=_unquoted(text).removeprefix(PINNED_HEADING).strip(),
                place=0,
                source=FROM_SUMMARY,
                key=EntryKey(""),
            )
    calls: dict[CallId, str] = {}
    for place, entry in enumerate(entries, start=1):
        for speaker, text, failed in _texts(entry, calls):
            if text.strip():
                yield Speech(
                    speaker=speaker,
                    text=_read(text, max(least_chars, _HEAD_CHARS[speaker])),
                    place=place,
                    source=entry.id,
                    key=entry.key,
                    before=before,
                    failed_call=failed,
                )
            if speaker in ("user", "assistant") and text.strip():
                before = text


def _unquoted(summary: str) -> str:
    """A summary with what was pinned in it as it was said, so that it can be pinned again.

    Also where a model repeats the section, whose heading is a step lower then: nothing else
    follows from it.
    """
    return "".join(
        PINNED_LINE.sub("- ", section).replace(PINNED_NOTE, "")
        if section.lstrip("#").startswith(_PINNED)
        else section
        for section in HEADINGS.split(summary)
    )


def _texts(entry: Entry, calls: dict[CallId, str]) -> Iterator[tuple[Speaker, str, str]]:
    if entry.role == "system":
        return  # it stays in every request
    said_by: Speaker = "user" if entry.role == "user" and not entry.message.summary else "assistant"
    for part in entry.parts:
        if isinstance(part, Text):
            text = without_recalled_blocks(part.text, any_spelling=entry.role == "user")
            text = strip_channel_prefix(text)
            if not (said_by == "user" and consumed(text)):
                yield said_by, text, ""
        elif isinstance(part, ToolCall):
            told = "\n".join(_strings(_decoded(part.arguments), 0))
            calls[part.id] = f"{part.name} {' '.join(told.split())[:_CALL_CHARS]}".strip()
            yield "call", told, ""
        elif isinstance(part, ToolResult):
            failed = _call_of(part, calls) if part.is_error else ""
            yield "tool", without_recalled_blocks(part.text, any_spelling=False), failed


def _call_of(result: ToolResult, calls: Mapping[CallId, str]) -> str:
    return calls.get(result.call_id) or result.name or "a tool"


def _decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _strings(value: Any, depth: int) -> Iterator[str]:
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, depth + 1)


def _read(text: str, head_chars: int) -> str:
    if len(text) <= head_chars + _TAIL_CHARS:
        return text
    head, tail = text[:head_chars], text[-_TAIL_CHARS:]
    # whole lines, so that nothing is found that nobody wrote
    return f"{head[: head.rfind(chr(10)) + 1] or head}\n{tail[tail.find(chr(10)) + 1 :]}"


LINES_SHARE: Final = 0.04
"""Of the window, what the lines may take."""
LINES_TOKENS: Final = 3000
"""At the most."""
LINE_CHARS: Final = 200
MOST_LINES: Final = 160
"""Kept for the next compaction: as many as are ever shown, and about twice as many at 64k."""
_BY: Final[Mapping[Speaker, float]] = {"user": 4.0, "assistant": 2.0, "call": 1.0, "tool": 0.5}
"""Who counts how much: what was said before what was logged."""
_LEAST_WORDS, _MOST_WORDS = 4, 10
"""With fewer words a line tells nothing; with more it tells no more."""
_LINES_A_NAME: Final = 6
_AGAIN: Final = 0.3
"""What a name is worth in a line once another line tells about it."""
_SAID_WORD: Final = 0.3
"""What a word is worth that another line said: a log says the same of everything."""
_EVEN: Final = 50.0
"""How even the worth of names is: of the first it is twice that of the one at this rank."""
_STILL_SHOWN: Final = 0.3
"""What a name is worth that the messages which stay still speak of: its lines can wait."""
_LINE_COST: Final = 40
"""Characters that any line costs, so that short ones do not take all of the room."""
_TOLD_SHARE: Final = 0.6
"""So much of a line's words in one line of the summary, beside a name of it, and it is told."""

MOST_NAMES: Final = 1000
ARGUMENT_CHARS: Final = 600
"""A longer argument is content: a file's, a patch's."""
_USER, _MODEL, _CONTENT, _RESULT = 4.0, 2.0, 1.0, 0.25
"""What a naming is worth by where it stands: a log names everything."""
_MOST_OF_RESULTS: Final = 3.0
"""However often a log repeats a name, the user's naming it once is worth more."""
_PATH_FACTOR, _NUMBER_FACTOR = 1.5, 0.3
FADES: Final = 0.7
"""What is left of a name's place, and of a line's, at the next compaction."""
_READ_CHARS: Final = 100_000
_LINES_READ_CHARS: Final = 40_000
"""Of one result or call: what a later message relies on may stand in the middle of a file."""
_LEAST_CHARS, _MOST_CHARS = 4, 120
_SHARED_LEAST: Final = 3
"""So many paths below a folder make it worth naming once."""
_CHAIN: Final = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)+")
_LINKS: Final = re.compile(r"\.|::|->")
_FILE: Final = re.compile(
    r"[\w-]+\.(?:tsx?|m?jsx?|jsonl?|md|py|sh|css|html|ya?ml|toml|lock|txt|rs|go|java|c|h|cpp|rb|php"
    r"|sql|cfg|ini|csv)"
)
_SHAPED: Final = re.compile(r"[A-Za-z$]*[a-z0-9][A-Z]\w*|\w*[A-Za-z]_\w+|_\w{3,}")
_WORD: Final = re.compile(r"[\w$@](?:[\w$@./:-]*[\w$])?")
_LEAST_WORD_CHARS: Final = 3
_LABELS: Final[Mapping[Speaker, str]] = {
    "user": "User:",
    "assistant": "Assistant:",
    "call": "Calls:",
    "tool": "Tools:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TellResult:
    """The lines as they stand behind a summary, empty where there are none, and how many."""

    text: str = field(repr=False)
    lines: int
    reason: str


@dataclass(slots=True, kw_only=True)
class _Line:
    """A line that may be told."""

    told: QuotedLine = field(repr=False)
    names: frozenset[str] = field(repr=False)
    words: frozenset[str] = field(repr=False)
    weight: float
    """How much a word of it tells for its length, whatever its names are worth; 0: nothing."""


def lines_tokens(window_tokens: int) -> int:
    """What the lines may take in a window of this size."""
    return min(LINES_TOKENS, int(window_tokens * LINES_SHARE))


def tell(
    lines: Sequence[QuotedLine],
    summary: str,
    *,
    most_tokens: int,
    count_tokens: Callable[[str], int],
) -> TellResult:
    """The best of these lines that `summary` does not tell, as many as there is room for."""
    known = _Told(summary)
    chosen: dict[Speaker, list[str]] = {speaker: [] for speaker in _LABELS}
    tokens = count_tokens(_block({speaker: [""] for speaker in _LABELS}))
    missing = [line for line in lines if not known.tells(line.text)]
    for line in missing:
        spelled = defuse(line.text)
        cost = count_tokens(f"- {spelled}\n")
        if tokens + cost <= most_tokens:
            chosen[line.speaker].append(spelled)
            tokens += cost
    told = sum(map(len, chosen.values()))
    if not told:
        why = "the summary tells all of it, or there is no room"
        return TellResult(text="", lines=0, reason=why)
    return TellResult(
        text=_block(chosen),
        lines=told,
        reason=f"{told} of {len(missing)} lines that the summary does not tell",
    )


def _block(chosen: Mapping[Speaker, Sequence[str]]) -> str:
    said = [
        "\n".join([label, *(f"- {line}" for line in chosen[speaker])])
        for speaker, label in _LABELS.items()
        if chosen[speaker]
    ]
    return "\n".join([f"<{LINES_TAG}>", *said, f"</{LINES_TAG}>"])


class _Told:
    """What a summary tells, by the names in its lines."""

    def __init__(self, summary: str) -> None:
        self._lines: dict[str, list[frozenset[str]]] = {}
        for line in summary.splitlines():
            words = _words(line)
            for name in set(_names(line)) if len(words) >= _LEAST_WORDS else ():
                self._lines.setdefault(name, []).append(words)

    def tells(self, line: str) -> bool:
        words = _words(line)
        return any(
            len(words & held) >= _TOLD_SHARE * len(words)
            for name in set(_names(line))
            for held in self._lines.get(name, ())[:_LINES_A_NAME]
        )


def gather_lines(
    entries: Sequence[Entry],
    names: Sequence[str],
    before: Sequence[QuotedLine] = (),
    *,
    kept: Sequence[Entry] = (),
) -> tuple[QuotedLine, ...]:
    """The lines of `entries`, and those told `before`, that tell most about these names, best
    first: each next one is the best where those ahead of it stand already. `kept` stays in view."""
    folder = names[0] if names and names[0].endswith("/") else ""
    shown = {_short(name, folder) for said in speeches(kept) for name in _names(said.text)}
    worth = {
        name: (_STILL_SHOWN if name in shown else 1.0) / (_EVEN + rank)
        for rank, name in enumerate(names)
    }
    pool: dict[str, _Line] = {}
    for old in before:
        _offer(pool, old, FADES * _BY[old.speaker], worth, folder)
    for said in speeches(entries, least_chars=_LINES_READ_CHARS):
        for text in _pieces(said.text):
            line = QuotedLine(speaker=said.speaker, text=text)
            _offer(pool, line, _BY[said.speaker], worth, folder)
    return tuple(line.told for line in _best(_contenders(pool.values(), worth), worth))


def _offer(
    pool: dict[str, _Line], told: QuotedLine, by: float, worth: Mapping[str, float], folder: str
) -> None:
    """Take a line in, once, as said by the one who counts most."""
    weight = by / (len(told.text) + _LINE_COST)
    known = pool.get(told.text)
    if known is not None:
        if 0 < known.weight < weight:
            known.weight, known.told = weight, told
        return
    named = {_short(name, folder) for name in _names(told.text)}
    names = frozenset(name for name in named if name in worth)
    words = _words(told.text) if names else frozenset()
    tells = len(words) >= _LEAST_WORDS
    pool[told.text] = _Line(told=told, names=names, words=words, weight=weight if tells else 0.0)


def _pieces(text: str) -> Iterator[str]:
    """The sentences and lines of a text that name something, none too long."""
    for start, end in sentence_spans(text):
        sentence = text[start:end]
        if sentence.isalpha():
            continue
        line = one_line(sentence)
        if len(line) <= LINE_CHARS:
            yield line
            continue
        done = 0
        for name in _names(line):
            at = line.find(name, done)
            if at >= 0:
                piece = bounded(line[done:], at - done, len(name), LINE_CHARS)
                yield piece
                done = line.find(piece, done) + len(piece)


def _contenders(pool: Iterable[_Line], worth: Mapping[str, float]) -> list[_Line]:
    """Of each name the few lines that tell most, so that choosing takes no longer than reading."""
    by_name: dict[str, list[_Line]] = {}
    for line in pool:
        for name in line.names if line.weight else ():
            by_name.setdefault(name, []).append(line)

    def order(line: _Line) -> tuple[float, str]:
        return -line.weight * min(len(line.words), _MOST_WORDS), line.told.text

    chosen: dict[str, _Line] = {}
    for name in worth:
        for line in heapq.nsmallest(_LINES_A_NAME, by_name.get(name, ()), key=order):
            chosen[line.told.text] = line
    return list(chosen.values())


def _best(lines: Sequence[_Line], worth: Mapping[str, float]) -> Iterator[_Line]:
    """The line that adds most, again and again; a value that fell since is reckoned anew."""
    told: Counter[str] = Counter()
    said: set[str] = set()

    def value(line: _Line) -> float:
        new = len(line.words - said)
        words = min(new + _SAID_WORD * (len(line.words) - new), _MOST_WORDS)
        return line.weight * words * sum(worth[name] * _AGAIN ** told[name] for name in line.names)

    waiting = [(-value(line), line.told.text, line) for line in lines]
    heapq.heapify(waiting)
    given = 0
    while waiting and given < MOST_LINES:
        before, text, line = heapq.heappop(waiting)
        now = -value(line)
        if now > before and waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, text, line))
            continue
        told.update(line.names)
        said |= line.words
        given += 1
        yield line


def _words(text: str) -> frozenset[str]:
    """The words of a line that may tell something; a path or a name in code is one."""
    found = frozenset(_WORD.findall(text.casefold())) - STOP_WORDS
    return frozenset(
        word for word in found if len(word) >= _LEAST_WORD_CHARS and not word.isdigit()
    )


def rank_names(
    entries: Sequence[Entry], before: Sequence[str] = (), *, most: int = MOST_NAMES
) -> tuple[str, ...]:
    """Best first, the names of `entries`, and of the list `before`, by what they are worth."""
    fresh: dict[str, float] = {}
    in_results: dict[str, float] = {}
    for entry in entries:
        for text, weight in _spoken(entry):
            named = in_results if weight == _RESULT else fresh
            for name in set(_names(text)):
                named[name] = named.get(name, 0.0) + weight * _factor(name)
    for name, worth in in_results.items():
        fresh[name] = fresh.get(name, 0.0) + min(worth, _MOST_OF_RESULTS)
    folder = _shared_folder((*before, *fresh))
    scores: dict[str, float] = {}
    for name, worth in fresh.items():
        _add(scores, name, worth, folder)
    levels = sorted(scores.values(), reverse=True) or [1.0]
    for rank, name in enumerate(before):
        _add(scores, name, FADES * levels[min(rank, len(levels) - 1)], folder)
    scores.pop(folder, None)
    places = {_short(name, folder): rank for rank, name in enumerate(before)}
    ordered = sorted(scores, key=lambda name: (-scores[name], places.get(name, len(places)), name))
    if folder:
        ordered.insert(0, folder)
    return tuple(ordered[:most])


def _add(scores: dict[str, float], name: str, worth: float, folder: str) -> None:
    """Under the name without the folder that most paths share."""
    short = _short(name, folder)
    scores[short] = scores.get(short, 0.0) + worth


def _short(name: str, folder: str) -> str:
    return (name.removeprefix(folder) or name) if folder else name


def _factor(name: str) -> float:
    if "/" in name:
        return _PATH_FACTOR
    is_number = name.replace(".", "").isdigit()
    return _NUMBER_FACTOR if is_number or name.startswith("-") else 1.0


def _names(text: str) -> Iterator[str]:
    """As a reader would look for them: a chain of names in code by its pieces."""
    for written in shapes_in(text[:_READ_CHARS]):
        if not _LEAST_CHARS <= len(written) <= _MOST_CHARS:
            continue
        if _CHAIN.fullmatch(written) and not _FILE.fullmatch(written):
            for piece in _LINKS.split(written):
                if len(piece) >= _LEAST_CHARS and _SHAPED.fullmatch(piece):
                    yield piece
            continue
        yield written


def _shared_folder(names: Iterable[str]) -> str:
    """The folder that saves most when it is named once; empty where none does."""
    below: Counter[str] = Counter()
    for name in names:
        if name.startswith("/"):
            steps = name.split("/")
            below.update("/".join(steps[:depth]) + "/" for depth in range(3, len(steps)))
    best = max(below, key=lambda one: ((below[one] - 1) * len(one), one), default="")
    return best if best and below[best] >= _SHARED_LEAST else ""


def _spoken(entry: Entry) -> Iterator[tuple[str, float]]:
    """The texts of a message that may name something, and what a name in each is worth."""
    if entry.role == "system":
        return
    for part in entry.parts:
        if isinstance(part, Text):
            if entry.role != "user":
                yield part.text, _MODEL
            elif not consumed(part.text):
                yield without_recalled_blocks(part.text, any_spelling=True), _USER
        elif isinstance(part, ToolCall):
            values = list(_values(part.arguments))
            yield "\n".join(one for one in values if len(one) <= ARGUMENT_CHARS), _MODEL
            yield "\n".join(one for one in values if len(one) > ARGUMENT_CHARS), _CONTENT
        elif isinstance(part, ToolResult):
            yield part.text, _RESULT


def _values(arguments: str) -> Iterator[str]:
    """What a call is given, without the names of its arguments."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = arguments
    for value in given.values() if isinstance(given, dict) else [given]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            held = [one.values() if isinstance(one, dict) else [one] for one in value]
            yield from (one for ones in held for one in ones if isinstance(one, str))
