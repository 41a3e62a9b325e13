"""Recognizes prompts about time and continuation: "what did we do yesterday?", "where did we leave
off?", "what's left?", "continue with the importer". They are answered from the order of sessions.
A statement, or a question about a day with a subject of its own ("what did we decide about retries
yesterday?"), is none of them. Days are those of the caller's time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Literal, TypeAlias

from recollect.core.search.dates import WEEKDAYS
from recollect.core.search.tokenize import tokenize

MomentKind: TypeAlias = Literal["last", "open", "day", "continue"]

_MAX_CHARS: Final = 160
"""Longer prompts contain more than a question about time. Not measured."""
_MAX_SUBJECT_WORDS: Final = 6
_GREETINGS: Final = (
    r"^\W*(?:(?:ok|okay|now|so|and|then|please|today|hi|hey|hello|alright|good\ morning"
    r"|let['’]?s|let\ us|can\ (?:we|you)|could\ (?:we|you)|shall\ we|we\ should|i\ want\ to"
    r"|i['’]?d\ like\ to|time\ to)\W+)*"
)
# "Return 404" and "continue to log errors" are orders about code.
_GO_ON: Final = re.compile(
    _GREETINGS + r"(?:continue(?!\ to\ (?!work))|go\ on|carry\ on|pick\ (?:it\ )?up"
    r"|keep\ (?:going|working)|get\ back|go\ back"
    r"|(?:resume|return|proceed|move\ on)(?=\ (?:to|with|on|where|work(?:ing)?)\b)"
    r"|(?:start|begin)(?=\ (?:again\ )?(?:at\ |from\ )?where\b))\b(?P<rest>.*)$",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_LINKS: Final = re.compile(
    r"^(?:\W*(?:working|work|with|on|to|at|from|the|our|again|where|we|stopped|left|off|ended|it"
    r"|up)\b)*\W*",
    re.IGNORECASE | re.VERBOSE,
)
# Statements such as "the key moved last time" ask for nothing.
_ASKS: Final = re.compile(
    r"\?\W*$|"
    + _GREETINGS
    + r"(?:wh(?:at|ich|ere|en|o|y)|how|did|do|any|remind|tell|show|give|list"
    r"|recap|summari[sz]e|catch|(?:bring|get)\ me|current|status|open|remaining|unfinished"
    r"|to-?dos?)\b|\bwhere\ we\ left\ off\b",
    re.IGNORECASE | re.VERBOSE,
)
_LEFT_OFF: Final = re.compile(
    r"\bwhere\ (?:did\ (?:we|i|you)\ (?:leave|stop|end|get\ to)|(?:had\ )?(?:we|i)\ (?:left"
    r"|stopped|ended))\b|\bwhere\ (?:were\ (?:we|you)|was\ i|are\ we)\b(?=\W*$|\W+(?:with|on|at|in"
    r"|now|again|last|yesterday|before)\b)"
    r"|\bwhat\ (?:(?:were|was)\ (?:we|you|i)|(?:we|you|i)\ (?:were|was))\ (?:doing|working)\b"
    r"|\b(?:catch\ me\ up|(?:bring|get)\ me\ up\ to\ speed)\b|^\W*(?:current\ )?status\W*$"
    r"|\bwhat(?:['’]?s|\ is)\ (?:the|our)\ (?:current\ )?(?:status|state)"
    r"(?:\ of\ (?:the|our|my)\ (?:work|project))?(?=\W*$)"
    r"|\blast\ (?:session|time)\b|\b(?:the|our|my)\ (?:very\ )?last\ (?:thing|task|change|step)\b"
    r"|\bwhat\ did\ (?:we|i|you)\ (?:do|change|work\ on|finish)\ last\b",
    re.IGNORECASE | re.VERBOSE,
)
_OPEN: Final = re.compile(
    r"\bwhat(?:['’]?s|\ is|\ are)?\ (?:\w+\ )?(?:left|open|missing|remaining|pending|to\ do|next"
    r"|unfinished|outstanding)\b"
    r"|\b(?:which|what|any)\ (?:\w+\ )?(?:points?|tasks?|things?|items?|todos?|work)"
    r"\ (?:is|are|do)?\ ?(?:we\ )?(?:still\ )?(?:have\ )?"
    r"(?:left|open|missing|remaining|pending|to\ do|unfinished)\b|\b(?:open|remaining"
    r"|unfinished)\ (?:points?|tasks?|items?|ends)\b"
    r"|\b(?:to-?do\ list|todos)\b"
    r"|\bwhat\ (?:do|must|should)\ (?:we|i)\ (?:still\ )?(?:have\ to|need\ to)?\ ?do\ next\b",
    re.IGNORECASE | re.VERBOSE,
)
_DAY: Final = re.compile(
    r"\b(?:(?P<before>(?:the\ )?day\ before\ yesterday)|(?P<yesterday>yesterday)|(?P<today>today"
    r"|this\ (?:morning|afternoon))|(?P<this>this\ week)|(?P<last>last\ week|the\ past\ week)"
    r"|(?P<ago>\d{1,2}|two|three|four|five)\ days\ ago"
    r"|(?:(?:on|last|this|past)\ )+(?P<weekday>" + "|".join(WEEKDAYS) + r"))\b",
    re.IGNORECASE | re.VERBOSE,
)
_NUMBERS: Final = {"two": 2, "three": 3, "four": 4, "five": 5}
# What is left of a prompt about a day alone: "what did we get done", "remind me what we worked on".
_ABOUT_WORK: Final = frozenset(
    word
    for text in (
        "do did done doing work worked working get got finish finished change changed happen",
        "happened build built accomplish accomplished achieve complete completed make made go went",
        "remind tell show summarize summary recap list give review catch up know recall remember",
        "please can could again all just thing things stuff progress session sessions day so",
        "us we i me you our my the of on in at what which how much everything anything something",
        "task tasks end up still point points open left next hey hi hello ok far week overview",
        "last off where leave stop stopped end ended any there",
    )
    for word in tokenize(text)
)
_ASKS_WHAT: Final = re.compile(
    r"\b(?:what|which|how\ far|summari[sz]e|summary|recap|remind|overview|list|catch\ me\ up)\b",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a prompt about time asks for."""

    kind: MomentKind
    start: float = 0.0
    """The span of a "day", in seconds since the epoch."""
    end: float = 0.0
    words: frozenset[str] = field(default=frozenset(), repr=False)
    """Words of the subject of "continue"."""


def moment_asked(prompt: str, *, now: float, zone: tzinfo | None) -> Moment | None:
    """Return the moment that a prompt asks about; None if it asks about something else."""
    text = " ".join(prompt.split())
    if len(text) > _MAX_CHARS:
        return None
    went_on = _GO_ON.match(text)
    if went_on is not None:
        return _continued(went_on["rest"])
    day = _DAY.search(text)
    rest = _DAY.sub(" ", text)
    if day is not None and _ASKS_WHAT.search(rest) and not _subject(rest):
        start, end = _span(day, datetime.fromtimestamp(now, zone))
        if _OPEN.search(text):
            return Moment(kind="open")
        return Moment(kind="day", start=start.timestamp(), end=end.timestamp())
    if not _ASKS.search(text):
        return None
    if _OPEN.search(text) and not _subject(_OPEN.sub(" ", rest)):
        return Moment(kind="open")
    if _LEFT_OFF.search(text):
        words = _subject(_LEFT_OFF.sub(" ", rest))
        return Moment(kind="continue", words=words) if words else Moment(kind="last")
    return None


def is_about_order(prompt: str) -> bool:
    """Return whether a prompt asks about time or continuation alone, without a subject."""
    moment = moment_asked(prompt, now=0.0, zone=UTC)
    return moment is not None and not moment.words


def _continued(rest: str) -> Moment | None:
    words = _subject(_LINKS.sub("", _DAY.sub(" ", rest)))
    if words and len(words) <= _MAX_SUBJECT_WORDS:
        return Moment(kind="continue", words=words)
    return Moment(kind="last") if _LEFT_OFF.search(rest) else None


def _subject(text: str) -> frozenset[str]:
    return frozenset(tokenize(text)) - _ABOUT_WORK


def _span(match: re.Match[str], now: datetime) -> tuple[datetime, datetime]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day, days = today, 1
    if match["before"]:
        day = today - timedelta(days=2)
    elif match["yesterday"]:
        day = today - timedelta(days=1)
    elif match["ago"]:
        count = _NUMBERS.get(match["ago"].lower()) or int(match["ago"])
        day = today - timedelta(days=count)
    elif match["weekday"]:
        back = (today.weekday() - WEEKDAYS.index(match["weekday"].lower())) % 7
        day = today - timedelta(days=back or 7)
    elif match["this"] or match["last"]:
        monday = today - timedelta(days=today.weekday())
        day, days = (monday, 7) if match["this"] else (monday - timedelta(days=7), 7)
    return day, day + timedelta(days=days)
