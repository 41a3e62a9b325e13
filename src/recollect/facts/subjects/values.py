"""Cuts a statement into words and values: numbers, durations, versions, paths, hosts, days.

Owns how a value is recognised and written, so that "30 s", "30 seconds" and "30秒" are one.
Must never look at more than the statement. Always holds: the time is linear in the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from recollect.facts.subjects.words import CHINESE_FILLER, CHINESE_WORDS, SAME_WORD, listed

Kind: TypeAlias = Literal[
    "word",
    "number",
    "duration",
    "size",
    "percent",
    "money",
    "version",
    "path",
    "url",
    "host",
    "email",
    "time",
    "date",
    "weekday",
    "often",
    "name",
    "region",
]


@dataclass(frozen=True, slots=True)
class Token:
    """A word or a value of a statement, normalised, and where it stands."""

    text: str
    kind: Kind
    start: int
    end: int
    written: str


_UNITS: Final[dict[str, tuple[str, Kind]]] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "毫秒"), ("ms", "duration")),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒", "秒钟"), ("s", "duration")),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分钟"), ("min", "duration")),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "小时", "个小时"), ("h", "duration")),
    **dict.fromkeys(("day", "days", "d", "天"), ("d", "duration")),
    **dict.fromkeys(("week", "weeks", "周"), ("w", "duration")),
    **dict.fromkeys(("month", "months", "个月"), ("mo", "duration")),
    **dict.fromkeys(("year", "years", "年"), ("y", "duration")),
    **dict.fromkeys(("kb", "k", "kib"), ("kb", "size")),
    **dict.fromkeys(("mb", "mib", "m"), ("mb", "size")),
    **dict.fromkeys(("gb", "gib", "gi", "g"), ("gb", "size")),
    **dict.fromkeys(("tb", "tib"), ("tb", "size")),
    **dict.fromkeys(("%", "percent"), ("%", "percent")),
    **dict.fromkeys(("dollars", "usd", "美元", "元", "块"), ("money", "money")),
    **dict.fromkeys(("am", "pm", "a.m.", "p.m.", "点", "点钟"), ("", "time")),
}
_UNIT: Final = "|".join(sorted((re.escape(unit) for unit in _UNITS), key=len, reverse=True))
_MONTH: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_WEEKDAYS: Final = listed(
    """
    monday tuesday wednesday thursday friday saturday sunday weekend weekday
    """
)
_OFTEN: Final = listed(
    """
    hourly daily nightly weekly biweekly monthly quarterly yearly
    """
)

_NUMBERS: Final = {
    word: str(number)
    for number, word in enumerate("two three four five six seven eight nine ten".split(), start=2)  # noqa: SIM905
}
_ROOTS: Final = (
    "src|app|apps|lib|libs|pkg|cmd|internal|docs?|tests?|config|etc|var|opt|usr|home|tmp|data|"
    "packages|services|scripts|deploy|infra|db|web|server|client|assets|public|static|build|dist"
)
"""How paths of two parts begin; other words joined by a stroke are words."""

MOST_STATEMENT_CHARS: Final = 2_000
"""As long as a fact may be."""
_TOKENS: Final = re.compile(
    r"(?P<code>`[^`\n]{1,80}`)"
    r"|(?P<email>[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,6})"
    r"|(?P<url>[a-z][a-z0-9+]{1,12}://[^\s,;，。；）)\"'<>\u4e00-\u9fff]{1,300})"
    r"|(?P<local>(?:localhost|127\.0\.0\.1|0\.0\.0\.0)?:(?P<localport>\d{2,5})(?!\d))"
    r"|(?P<host>\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?(?!\w)"
    r"|[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,63}){0,6}\."
    r"(?:com|net|org|io|dev|internal|local|cn|corp|lan|cloud|example|test)(?::\d{2,5})?(?![\w/]))"
    r"|(?P<region>(?:us|eu|ap|sa|ca|me|af|cn|asia|europe)-[a-z]{4,12}-?\d[a-z]?(?!\w))"
    r"|(?P<path>(?<![A-Za-z0-9])(?:~|\.{1,2})?/[A-Za-z0-9_.@%+-]+"
    r"(?:/[A-Za-z0-9_.@%+-]+){0,20}/?"
    r"|[a-z]:\\[\w.\\-]{1,200}"
    r"|[A-Za-z0-9_.-]{1,60}(?:/[A-Za-z0-9_.@-]{1,60}){2,20}/?"
    r"|[A-Za-z0-9_.-]{1,60}/[A-Za-z0-9_@-]{0,60}\.[A-Za-z]{1,6}(?!\w)"
    r"|[A-Za-z0-9_.-]{1,60}/(?:[A-Za-z0-9_-]{1,60}/)?(?![\w])"
    rf"|(?:{_ROOTS})/[A-Za-z0-9_.@-]{{1,60}}"
    r"|[A-Za-z0-9_-]{1,60}\.(?:py|ts|tsx|js|json|ya?ml|toml|md|sql|sh|go|rs|env|conf|ini|cfg|txt|csv|db)"
    r"(?!\w))"
    rf"|(?P<date>\d{{4}}-\d{{1,2}}-\d{{1,2}}|(?:\d{{4}}\s?年\s?)?\d{{1,2}}\s?月\s?\d{{1,2}}(?:\s?[日号號]|(?![\d.]))"
    rf"|(?:{_MONTH})[a-z]{{0,6}}\.?\s\d{{1,2}}(?:st|nd|rd|th)?(?!\w)"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?(?:{_MONTH})[a-z]{{0,6}}(?!\w))"
    r"|(?P<clock>\d{1,2}[:：]\d{2}(?:\s?[ap]m)?(?!\d))"
    r"|(?P<money>[$€£¥]\s?\d[\d,.]{0,12}k?)"
    r"|(?P<version>v\d+(?:\.\d+){0,3}[\w.-]{0,12}|\d+(?:\.\d+){2,3}(?:-[\w.]{1,12})?)"
    rf"|(?P<measure>\d[\d,]{{0,12}}(?:\.\d+)?)\s?-?(?P<unit>{_UNIT})(?![a-z])"
    r"|(?P<number>\d[\d,]{0,12}(?:\.\d+)?(?![A-Za-z_-]))"
    r"|(?P<word>[^\W_\u4e00-\u9fff][^\W\u4e00-\u9fff]{0,60}"
    r"(?:[-.+#_'’][^\W\u4e00-\u9fff]{1,60}){0,6}[+#]{0,2})"
    r"|(?P<chinese>[\u4e00-\u9fff]{1,200})",
    re.IGNORECASE,
)
_LONGEST_CHINESE: Final = max(map(len, (*CHINESE_WORDS, *CHINESE_FILLER)))


def cut(text: str) -> list[Token]:
    """The words and values of a statement, in order; of one that is too long, of its beginning."""
    found = _TOKENS.finditer(text, 0, MOST_STATEMENT_CHARS)
    return [token for one in found for token in _tokens_of(one)]


def _tokens_of(found: re.Match[str]) -> Iterator[Token]:
    group = found.lastgroup or "word"
    if found["measure"] is not None:
        yield _measure(found)
    elif group == "chinese":
        yield from _chinese(found[0], found.start())
    elif group == "code":
        inner = list(_TOKENS.finditer(found[0][1:-1]))
        whole = inner[0] if len(inner) == 1 else None
        if whole is not None and whole.lastgroup not in {"word", "chinese"}:
            for token in _tokens_of(whole):
                yield _at(found, token.text, token.kind)
        else:
            yield _at(found, singular(found[0][1:-1].casefold()), "name")
    elif found["local"] is not None:
        yield _at(found, found["localport"], "number")
    else:
        yield _at(found, *_plain(group, found[0]))


def _plain(group: str, written: str) -> tuple[str, Kind]:
    text = written.casefold()
    match group:
        case "number":
            return _number(text), "number"
        case "money":
            return _number(text.lstrip("$€£¥ ").removesuffix("k")) + text[-1:].strip(
                "0123456789"
            ), "money"
        case "version":
            return text.removeprefix("v"), "version"
        case "clock":
            return _clock(text), "time"
        case "date":
            if "月" in text:
                return "".join(text.split()).rstrip("日号號"), "date"
            return " ".join(re.sub(r"(?<=\d)(?:st|nd|rd|th)|\bof\b", "", text).split()), "date"
        case "region":
            return text, "region"
        case "url" | "host" | "email" | "path":
            return text.rstrip("./") or text, group
        case _:
            return _word("usa" if written == "US" else text)


def _word(text: str) -> tuple[str, Kind]:
    word = singular(re.sub(r"['’]s?$", "", text))
    if word in _WEEKDAYS:
        return word, "weekday"
    if word in _NUMBERS:
        return _NUMBERS[word], "number"
    if word in _OFTEN:
        return word, "often"
    return word, "word"


def singular(word: str) -> str:
    """A word without its plural, in the one spelling that is used for it."""
    word = SAME_WORD.get(word, word)
    if not word.isascii() or len(word) < 4 or word in _KEPT_PLURALS:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif re.search(r"(?:sses|xes|ches|shes|zzes)$", word):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is", "as", "os", "redis")):
        word = word[:-1]
    return SAME_WORD.get(word, word)


_KEPT_PLURALS: Final = listed(
    """
    redis kubernetes postgres https always sometimes jenkins pandas retries replicas
    instances workers threads connections series status news dns aws gcs sass nexus
    express rails keras tabs spaces nats css js windows macos ios
    """
)


def _measure(found: re.Match[str]) -> Token:
    unit, kind = _UNITS[found["unit"].casefold()]
    number = _number(found["measure"])
    if kind == "time":
        hour = int(float(number))
        late = found["unit"].casefold().startswith("p") and hour < 12
        return _at(found, f"{(hour + 12) if late else hour}:00", "time")
    if kind == "money":
        return _at(found, number, "money")
    return _at(found, f"{number}{unit}", kind)


def _clock(text: str) -> str:
    hour, minute = re.split("[:：]", text)[:2]
    late = "pm" in minute and int(hour) < 12
    return f"{int(hour) + 12 if late else int(hour)}:{minute[:2]}"


def _number(text: str) -> str:
    plain = text.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain.lstrip("0") or "0"


def _chinese(run: str, start: int) -> Iterator[Token]:
    """Known words one by one; what stands between them, as it is."""
    at = unknown = 0
    while at < len(run):
        size = next(
            (
                size
                for size in range(min(_LONGEST_CHINESE, len(run) - at), 0, -1)
                if run[at : at + size] in CHINESE_WORDS or run[at : at + size] in CHINESE_FILLER
            ),
            0,
        )
        if not size:
            at += 1
            continue
        if unknown < at:
            yield Token(run[unknown:at], "word", start + unknown, start + at, run[unknown:at])
        known = run[at : at + size]
        for english in CHINESE_WORDS.get(known, "").split():
            yield Token(*_word(english), start + at, start + at + size, known)
        at += size
        unknown = at
    if unknown < len(run):
        yield Token(run[unknown:], "word", start + unknown, start + len(run), run[unknown:])


def _at(found: re.Match[str], text: str, kind: Kind) -> Token:
    return Token(text, kind, found.start(), found.end(), found[0])
