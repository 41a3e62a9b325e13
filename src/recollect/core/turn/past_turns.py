"""The turns of earlier sessions, read from stored messages: request, outcome, edited files, and the
points that the outcome left open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from pathlib import PurePath
from typing import Final

from recollect.core.rules.noise import strip_channel_prefix, without_reminders
from recollect.core.rules.text import one_line, sentence_spans, without_recalled_blocks
from recollect.core.search.moments import is_about_order
from recollect.core.search.statements import statement_kind
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.rulings import Ruling, standing_rules
from recollect.core.values.recall import FILE_SESSIONS
from recollect.core.values.segment import Segment, SegmentId

SUBAGENT_SESSIONS: Final = "agent-"
"""Prefix of the sessions that hold results of subagents."""
NOT_TYPED: Final = (
    *("<task-notification>", "<system-reminder>", "<environment_context>", "<command-name>"),
    *("<bash-", "<local-command-"),
)
"""Openings of messages that an agent sends as the user, although nobody typed them."""
_EDITS: Final = re.compile(r"edit|write|patch|replace|create", re.IGNORECASE)
_PATHS: Final = re.compile(
    r'"(?:file_path|notebook_path|path)":"((?:[^"\\]|\\.){1,400})"'
    r"|\*\*\* (?:Update|Add) File: ([^\\\n]{1,400})"
)
_MAX_OPEN_CHARS: Final = 240
_OPEN: Final = re.compile(
    r"\b(?:still\ (?:open|missing|to\ do|pending|left|need(?:s|ed)?)|left\ to\ (?:do|be)"
    r"|not\ (?:yet\ )?(?:done|implemented|written|handled|run|finished|tested|deployed)\b"
    r"|(?:is|are|has|have)\ (?:not|only)\b.{1,60}\b(?:yet|a\ stub|stubs|a\ draft)|next\ (?:step|up)"
    r"|to-?do\b|remaining|remains\ to|must\ be\ .{1,60}\bbefore\b|open:|missing:|follow[- ]up)",
    re.IGNORECASE | re.VERBOSE,
)
# A title such as "Open points:", "What's left:" or "Next:".
_OPEN_TITLE: Final = re.compile(
    r"^(?:\W*\b(?:what['’]?s|what\ is|still|things|left|my|the|known))*\W*"
    r"\b(?:open|missing|left|pending|unfinished|outstanding|to[- ]do|next)"
    r"(?:\ (?:points?|items?|tasks?|issues?|questions?|work|ends|up))?:$",
    re.IGNORECASE | re.VERBOSE,
)
_DONE: Final = re.compile(
    r"^\W*(?:none|n/a|nothing(?:\ \w+)?)\W*$|^(?:\[x\]|~~|✅|✔)", re.IGNORECASE | re.VERBOSE
)
_CODE: Final = re.compile(r"^ *```.*?(?:^ *```[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_TITLE: Final = re.compile(r"^(?:#{1,6} +|(?=\*\*[^*\n]*\*\*:? *$))(.*\w.*)$", re.MULTILINE)
_BOLD: Final = re.compile(r"(?<![\w*/])\*\*(?=[\w`\"])([^*\n]*[^*\s/])\*\*")
_NUMBER: Final = re.compile(r"^( *)\d{1,3}[.)] ", re.MULTILINE)
_DONE_SHARE: Final = 0.5
"""A point is done if one later turn has half of its words, weighted by rarity."""
_MAX_OPEN_TURNS: Final = 300
"""Points of older turns are most likely done or dropped. Not measured; bounds the comparisons."""
_SHORT_CHARS: Final = 120
_POLITE_WORDS: Final = frozenset(
    tokenize(
        "thanks thank bye goodbye hi hello hey please good great nice perfect fine cool sure yes no"
        " ok okay lgtm look looks see later soon tomorrow today morning evening night all now then"
        " done go ahead continue 谢谢 再见 你好"
    )
)
_MIN_WORD_CHARS: Final = 3


@dataclass(kw_only=True)
class PastTurn:
    """One request of the user, and what came of it."""

    session: str
    said_at: float
    request: str = field(repr=False)
    outcome: str = field(default="", repr=False)
    files: list[str] = field(default_factory=list)
    has_tools: bool = False
    ended_at: float = 0.0

    @property
    def is_short(self) -> bool:
        """True if nothing was done and little said."""
        short = len(self.request) + len(self.outcome) <= _SHORT_CHARS
        return not self.has_tools and short and not _OPEN.search(self.outcome)

    @property
    def decides(self) -> bool:
        """True if the user states a decision."""
        return statement_kind(self.request[:_MAX_OPEN_CHARS], by_user=True) == "decision"

    @property
    def is_small_talk(self) -> bool:
        """True if a short turn only greets, thanks or agrees, or asks where the work was left."""
        is_polite = _POLITE_WORDS.issuperset(tokenize(self.request))
        return self.is_short and (is_polite or is_about_order(self.request))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the request, the outcome and the files, once all are read."""
        return words_of(f"{self.request}\n{self.outcome}\n{' '.join(self.files)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPoint:
    """Something that a turn left open and that no later turn has done."""

    text: str = field(repr=False)
    turn: PastTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What stored messages tell about the user's work, oldest first."""

    turns: tuple[PastTurn, ...] = field(default=(), repr=False)
    rules: tuple[Ruling, ...] = field(default=(), repr=False)
    pinned: tuple[str, ...] = field(default=(), repr=False)
    """Facts that the user pinned, which come before the rules."""

    def rarity(self) -> dict[str, float]:
        """Return the weight of each word: the fewer turns have it, the higher."""
        counts = Counter(word for turn in self.turns for word in turn.words)
        return {word: log(1 + len(self.turns) / count) for word, count in counts.items()}


def read_past(
    segments: Iterable[Segment],
    *,
    folder: str = "",
    pinned: Sequence[str] = (),
    after_gap: Collection[SegmentId] = (),
) -> Past:
    """Read the turns and rules from messages in the order in which they arrived. An agent's clock
    may differ from ours, so only requests are sorted by time. Paths are shortened relative to
    `folder`. Before the messages `after_gap`, messages were forgotten, perhaps a request whose
    answer follows."""
    turns: list[PastTurn] = []
    open_turn: dict[str, PastTurn] = {}
    for segment in segments:
        session = segment.session
        if segment.id in after_gap:
            open_turn.clear()
        if session.startswith((FILE_SESSIONS, SUBAGENT_SESSIONS)):
            continue
        if segment.role == "user" and segment.tool is None:
            open_turn.pop(session, None)
            text = typed_text(segment)
            if text:
                turn = PastTurn(session=session, said_at=segment.said_at, request=text)
                open_turn[session] = turn
                turns.append(turn)
            continue
        current = open_turn.get(session)
        if current is not None:
            _add_answer(current, segment, folder)
    turns.sort(key=lambda turn: turn.said_at)
    for turn in turns:
        turn.outcome = _plain_text(turn.outcome)
    rules = standing_rules((turn.said_at, turn.request) for turn in turns)
    return Past(turns=tuple(turns), rules=tuple(rules), pinned=tuple(map(one_line, pinned)))


def typed_text(segment: Segment) -> str:
    """Return what a person typed in a message; empty if another program wrote it."""
    if segment.trust != "high" or segment.text.lstrip().startswith(("/", *NOT_TYPED)):
        return ""
    text = without_reminders(strip_channel_prefix(segment.text))
    return without_recalled_blocks(text, any_spelling=True).strip()


def open_points(past: Past) -> list[OpenPoint]:
    """Return the open points that no later turn has done, the newest first."""
    rarity = past.rarity()
    points: list[OpenPoint] = []
    for back, turn in enumerate(past.turns[: -_MAX_OPEN_TURNS - 1 : -1]):
        later = past.turns[len(past.turns) - back :]
        for sentence in _open_sentences(turn.outcome):
            words = words_of(sentence)
            least = _DONE_SHARE * weight_of(words, rarity)
            if not any(weight_of(words & done.words, rarity) >= least > 0 for done in later):
                points.append(OpenPoint(text=sentence, turn=turn))
    return points


def words_of(text: str) -> frozenset[str]:
    return frozenset(
        word for word in tokenize(text) if len(word) >= _MIN_WORD_CHARS or word.isdigit()
    )


def weight_of(words: Iterable[str], rarity: dict[str, float]) -> float:
    """Return the sum of the words' weights. A word of no turn weighs as much as the rarest."""
    rarest = max(rarity.values(), default=1.0)
    return sum(rarity.get(word, rarest) for word in words)


def _open_sentences(outcome: str) -> list[str]:
    """Return the sentences that leave something open, and the items below a title that does."""
    found: list[str] = []
    is_open = has_items = False
    for line in outcome.splitlines():
        text = one_line(line)
        is_item = text != " ".join(line.split())
        leaves_open = _OPEN.search(text) or _OPEN_TITLE.search(text)
        if text.endswith(":") and (leaves_open or not is_item):
            is_open, has_items = leaves_open is not None, False
        elif is_open and text and (is_item or not has_items):
            found.append(text)
            is_open, has_items = is_item, is_item
        elif text:
            is_open = False
            for start, end in sentence_spans(text):
                kind = statement_kind(text[start:end], by_user=False)
                if kind == "task" or _OPEN.search(text[start:end]):
                    found.append(text[start:end])
    return [text for text in found if len(text) <= _MAX_OPEN_CHARS and not _DONE.search(text)]


def _plain_text(markdown: str) -> str:
    """Drop code blocks, bold type and numbers of items; end titles with a colon."""
    text = _TITLE.sub(lambda match: f"{match[1].strip(' *#:?')}:", _CODE.sub("", markdown))
    return _NUMBER.sub(r"\1- ", _BOLD.sub(r"\1", text)).strip()


def _add_answer(turn: PastTurn, segment: Segment, folder: str) -> None:
    turn.ended_at = max(turn.said_at, segment.said_at)
    if segment.tool is None:
        if segment.role == "assistant" and segment.text.strip():
            turn.outcome = segment.text.strip()
        return
    turn.has_tools = True
    is_edit = _EDITS.search(segment.tool) or "*** Begin Patch" in segment.text
    for match in _PATHS.finditer(segment.text) if is_edit and segment.role == "assistant" else ():
        path = _short_path(match[1] or match[2], folder)
        turn.files = [*(file for file in turn.files if file != path), path]


def _short_path(path: str, folder: str) -> str:
    if folder and path.startswith(f"{folder}/"):
        return path[len(folder) + 1 :]
    parts = PurePath(path).parts
    return path if len(parts) <= 3 else "/".join(parts[-3:])
