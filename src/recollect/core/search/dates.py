"""Days in text: those that a question asks about, and those that a statement mentions. Days that a
statement mentions are indexed as words such as `on=2023-05-07` and `on=2023-05`, because
"yesterday" depends on when it was written. A month without a year means that month in each of the
last few years. Days are in UTC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
MONTH_NUMBERS: Final = {
    **{name: number for number, name in enumerate(_MONTHS, 1)},
    **{name[:3]: number for number, name in enumerate(_MONTHS, 1)},
    "sept": 9,
}
WEEKDAYS: Final = (*("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),)
_NUMBERS: Final = {
    word: number
    for number, words in enumerate(
        ("", "a an one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    )
    for word in words.split()
} | {"couple of": 2, "a couple of": 2, "few": 3, "a few": 3}
_UNIT_DAYS: Final = {"day": 1.0, "week": 7.0, "month": 30.4, "year": 365.0}
# "Three weeks ago" may be off by this much, because people round.
_SLACK_DAYS: Final = {"day": 1.0, "week": 3.0, "month": 10.0, "year": 60.0}

_MONTH: Final = "|".join(sorted(MONTH_NUMBERS, key=len, reverse=True))
_ISO: Final = re.compile(r"\b(\d{4})[-/](\d{1,2})(?:[-/](\d{1,2}))?(?:\b|(?=t\d))")
# White space is limited, because the search would start again at each character of a long run.
_CHINESE: Final = re.compile(
    r"(?:(\d{4})\s{0,3}年\s{0,3})?(\d{1,2})\s{0,3}月(?:\s{0,3}(\d{1,2})\s{0,3}[日号])?"
)
_YEAR: Final = r"\d{4}"
_NTH: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_NAMED: Final = re.compile(
    rf"\b(?:(?P<day>{_NTH})(?: of)? (?P<month>{_MONTH})\b\.?,?(?: (?P<year>{_YEAR}))?"
    rf"|(?P<month2>{_MONTH})\b\.? (?P<day2>{_NTH})\b(?!:)(?:,? (?P<year2>{_YEAR}))?"
    rf"|(?P<month3>{_MONTH})\b\.?,?(?: (?:of )?(?P<year3>{_YEAR}))?)"
)
# Words that are months only in some contexts: "may I", "march on", "this may help".
_DOUBTFUL: Final = frozenset({"may", "march", "mar", "jan", "dec", "sep", "oct", "nov"})
_BEFORE_MONTH: Final = re.compile(
    r"\b(?:in|of|since|during|by|until|till|before|after|last|this|early|late|mid)[ -]$"
)
_BEFORE_CHARS: Final = 10  # the words before a month, such as "since"
_AGO: Final = re.compile(
    r"\b(\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|(?:a )?couple of|(?:a )?few)"
    r" (day|week|month|year)s? (?:ago|back|earlier)\b"
)
_WEEKDAY: Final = re.compile(rf"\b(last|this past|past|on|this) ({'|'.join(WEEKDAYS)})\b")
_SPAN: Final = re.compile(r"\b(last|past|previous) (week|weekend|month|year)\b")
_CHINESE_DAYS: Final = {"昨天": 1, "前天": 2, "今天": 0, "昨晚": 1}
_CHINESE_SPANS: Final = {"上周": (14, 0), "上个月": (62, -1)}
_SPAN_DAYS: Final = {"week": (14, 0), "weekend": (10, 0), "month": (62, -1), "year": (730, -30)}
"""The window of each span, in days before and after today."""

_LEAST_YEAR, _MOST_YEAR = 1900, 2200
_NO_DAY: Final = date(1970, 1, 1)
_YEARS_BACK: Final = 4
"""Number of years to search for a month without a year."""
_READ_CHARS: Final = 4_000  # not measured; bounds the search
_MOST_WINDOWS: Final = 64
"""Limit of time windows, because each is compared with every passage. Pasted text contains many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """A time range that a question asks about, in seconds since the epoch."""

    start: float
    end: float
    phrase: str
    words: tuple[str, ...] = ()


def windows_asked(question: str, *, asked_at: float) -> tuple[TimeWindow, ...]:
    """Return the time windows that a question names, widened, because an event of May may be
    mentioned in June."""
    lowercase_text = question[:_READ_CHARS].lower()
    windows: dict[TimeWindow, None] = {}
    this_year = _day(asked_at).year
    years = range(this_year, this_year - _YEARS_BACK, -1)
    for day, month, year in _find_named_days(lowercase_text):
        for window_year in (year,) if year else years:
            window = _window_of_date(window_year, month, day)
            if window is not None:
                windows[window] = None
        if len(windows) >= _MOST_WINDOWS:
            break
    windows.update(dict.fromkeys(_relative_windows(lowercase_text, _day(asked_at))))
    return tuple(windows)[:_MOST_WINDOWS]


def days_meant(text: str, said_at: float) -> tuple[str, ...]:
    """Return index words for the days and months that a statement mentions, without repetition."""
    lowercase_text = text.lower()
    said_on = _day(said_at)
    words: list[str] = []
    for day, month, year in _find_named_days(lowercase_text):
        meant_day = _valid(year or _nearest_year(said_on, month, day), month, day or 1)
        if meant_day is not None:
            words.extend(_words_of(meant_day, whole_month=day is None))
    for meant_day, exact in _relative_days(lowercase_text, said_on):
        words.extend(_words_of(meant_day, whole_month=not exact))
    return tuple(dict.fromkeys(words))


def _find_named_days(lowercase_text: str) -> Iterator[tuple[int | None, int, int | None]]:
    for match in _ISO.finditer(lowercase_text):
        yield _number(match[3]), int(match[2]), int(match[1])
    for match in _CHINESE.finditer(lowercase_text):
        yield _number(match[3]), int(match[2]), _number(match[1])
    for match in _NAMED.finditer(lowercase_text):
        month = match["month"] or match["month2"] or match["month3"]
        day = match["day"] or match["day2"]
        year = match["year"] or match["year2"] or match["year3"]
        alone = day is None and year is None
        before = lowercase_text[max(0, match.start() - _BEFORE_CHARS) : match.start()]
        named = _BEFORE_MONTH.search(before) and f"{before[-5:]}{month}" != "this may"
        if alone and month in _DOUBTFUL and not named:
            continue
        yield _number(day), MONTH_NUMBERS[month], _number(year)


def _window_of_date(year: int, month: int, day: int | None) -> TimeWindow | None:
    first = _valid(year, month, day or 1)
    if first is None:
        return None
    words = _words_of(first, whole_month=day is None)
    if day is None:
        return _window(first, 0, 40, words)
    return _window(first, 1, 8, words[:1])


def _relative_windows(lowercase_text: str, today: date) -> Iterator[TimeWindow]:
    for match in _AGO.finditer(lowercase_text):
        centre, slack = _ago(today, match), _SLACK_DAYS[match[2]]
        words = _words_of(centre, whole_month=match[2] == "month")[:1]
        yield _window(centre, slack, slack + 1, words)
    if "yesterday" in lowercase_text or "last night" in lowercase_text:
        yield _window_around(today - timedelta(days=1), 1)
    for match in _SPAN.finditer(lowercase_text):
        yield _window(today, *_SPAN_DAYS[match[2]])
    for match in _WEEKDAY.finditer(lowercase_text):
        if match[1] != "on":
            yield _window_around(_last_weekday(today, match[2]), 2)
    for word, days in _CHINESE_DAYS.items():
        if word in lowercase_text:
            yield _window_around(today - timedelta(days=days), 1)
    for word, span_days in _CHINESE_SPANS.items():
        if word in lowercase_text:
            yield _window(today, *span_days)


def _relative_days(lowercase_text: str, said_at: date) -> Iterator[tuple[date, bool]]:
    for match in _AGO.finditer(lowercase_text):
        yield _ago(said_at, match), match[2] in ("day", "week")
    if "yesterday" in lowercase_text or "last night" in lowercase_text:
        yield said_at - timedelta(days=1), True
    if "tomorrow" in lowercase_text:
        yield said_at + timedelta(days=1), True
    for match in _SPAN.finditer(lowercase_text):
        days = {"week": 7, "weekend": (said_at.weekday() - 5) % 7 or 7, "month": 0, "year": 365}
        if match[2] == "month":
            yield said_at.replace(day=1) - timedelta(days=1), False
        else:
            yield said_at - timedelta(days=days[match[2]]), match[2] != "year"
    for match in _WEEKDAY.finditer(lowercase_text):
        yield _last_weekday(said_at, match[2]), True
    for word, back in _CHINESE_DAYS.items():
        if word in lowercase_text and back:
            yield said_at - timedelta(days=back), True
    if "上个月" in lowercase_text:
        yield said_at.replace(day=1) - timedelta(days=1), False


def _ago(today: date, match: re.Match[str]) -> date:
    count = int(match[1]) if match[1].isdigit() else _NUMBERS[match[1]]
    days = min(count * _UNIT_DAYS[match[2]], 36_500)
    try:
        return today - timedelta(days=round(days))
    except OverflowError:
        return today


def _last_weekday(today: date, name: str) -> date:
    back = (today.weekday() - WEEKDAYS.index(name)) % 7 or 7
    return today - timedelta(days=back)


def _nearest_year(said_at: date, month: int, day: int | None) -> int:
    years = (said_at.year - 1, said_at.year, said_at.year + 1)
    distances = [
        (abs((candidate_day - said_at).days), year)
        for year in years
        if (candidate_day := _valid(year, month, day or 15))
    ]
    return min(distances)[1] if distances else said_at.year


def _window_around(day: date, days_after: int) -> TimeWindow:
    return _window(day, 1, days_after, _words_of(day, whole_month=False)[:1])


def _window(
    day: date, days_before: float, days_after: float, words: tuple[str, ...] = ()
) -> TimeWindow:
    start, end = day - timedelta(days=days_before), day + timedelta(days=days_after)
    return TimeWindow(
        start=_seconds(start), end=_seconds(end), phrase=f"{start} to {end}", words=words
    )


def _words_of(day: date, *, whole_month: bool) -> tuple[str, ...]:
    month = f"on={day:%Y-%m}"
    return (month,) if whole_month else (f"on={day:%Y-%m-%d}", month)


def _valid(year: int, month: int, day: int) -> date | None:
    if not (_LEAST_YEAR <= year <= _MOST_YEAR and 1 <= month <= 12):
        return None
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _number(digits: str | None) -> int | None:
    return int(digits.rstrip("sthndr")) if digits else None


def _day(seconds: float) -> date:
    try:
        day = datetime.fromtimestamp(seconds, UTC).date()
    except (OverflowError, OSError, ValueError):
        return _NO_DAY
    return day if _LEAST_YEAR <= day.year <= _MOST_YEAR else _NO_DAY


def _seconds(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
