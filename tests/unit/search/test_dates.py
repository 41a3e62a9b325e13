"""Days out of text: what a question asks about, what a statement means, and where they meet."""

from datetime import UTC, datetime

import pytest

from recollect.core.search.dates import TimeWindow, days_meant, windows_asked


def at(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


WEDNESDAY = at("2023-05-10T12:00:00")


def asked(question: str, now: float = WEDNESDAY) -> tuple[TimeWindow, ...]:
    return windows_asked(question, asked_at=now)


def covers(windows: tuple[TimeWindow, ...], day: str) -> bool:
    return any(window.start <= at(day) + 43_200 <= window.end for window in windows)


@pytest.mark.parametrize(
    ("question", "inside", "outside"),
    [
        ("what happened on 7 May 2023?", "2023-05-07", "2023-05-20"),
        ("what happened on the 7th of May, 2023?", "2023-05-07", "2023-04-30"),
        ("what happened on May 7th, 2023?", "2023-05-07", "2023-04-30"),
        ("2023-05-07, what was said?", "2023-05-07", "2023-05-30"),
        ("what did the log of 2023-05-07T10:15:00Z say?", "2023-05-07", "2023-05-30"),
        ("who came in June 2021?", "2021-06-20", "2021-08-01"),
        ("who came in Sept. 2021?", "2021-09-20", "2021-11-20"),
        ("2023年5月7日发生了什么", "2023-05-07", "2023-05-30"),
        ("2022 年 11 月 谁来了", "2022-11-20", "2023-01-20"),
        ("what did I do yesterday?", "2023-05-09", "2023-05-06"),
        ("昨天我做了什么", "2023-05-09", "2023-05-06"),
        ("what did she say last Sunday?", "2023-05-07", "2023-04-30"),
        ("where were we two weeks ago?", "2023-04-26", "2023-05-08"),
        ("where were we a couple of months ago?", "2023-03-10", "2023-05-08"),
        ("what broke last month?", "2023-04-15", "2022-12-15"),
    ],
)
def test_a_question_asks_about_days(question: str, inside: str, outside: str) -> None:
    windows = asked(question)
    assert covers(windows, inside)
    assert not covers(windows, outside)


def test_a_day_without_a_year_is_the_nearest_one_or_is_looked_for_in_the_last_years() -> None:
    windows = asked("what did we plan in April?")
    years = ("2023", "2022", "2021", "2020")
    assert [covers(windows, f"{year}-04-15") for year in years] == [True] * 4
    assert not covers(windows, "2019-04-15")
    assert "on=2022-12-25" in days_meant("the tree fell on 25 December", at("2023-01-03"))
    assert "on=2024-01-02" in days_meant("we leave on January 2", at("2023-12-28"))


@pytest.mark.parametrize(
    "question",
    [
        "May I come in?",
        "this may help",
        "the captain may know",
        "the army will march on",
        "did the mar on the table go away?",
        "30 February 2023",
        "2023-13-45",
        "1823-05-07",
        "9999年5月7日",
        "at 3:15",
        "the 5th element",
        "十五",
        "",
    ],
)
def test_what_names_no_day(question: str) -> None:
    assert asked(question) == ()
    assert days_meant(question, WEDNESDAY) == ()


@pytest.mark.parametrize(
    ("said", "day"),
    [
        ("last Sunday we went to the lake", "2023-05-07"),
        ("yesterday we went to the lake", "2023-05-09"),
        ("we went to the lake last night", "2023-05-09"),
        ("three days ago we went to the lake", "2023-05-07"),
        ("last Wednesday we went to the lake", "2023-05-03"),
        ("the visit is tomorrow", "2023-05-11"),
        ("on 2 May we went to the lake", "2023-05-02"),
        ("5月2日我们去了湖边", "2023-05-02"),
        ("前天我们去了湖边", "2023-05-08"),
    ],
)
def test_a_question_that_names_the_day_meets_what_was_said_about_it(said: str, day: str) -> None:
    """Said on another day, so only what the words mean can bring them together."""
    meant = days_meant(said, WEDNESDAY)
    moment = datetime.fromisoformat(day)
    for question in (
        f"what happened on {day}?",
        f"what happened on {moment:%d %B %Y}?",
        f"what happened on {moment:%B} {moment.day}?",
        f"{moment.year}年{moment.month}月{moment.day}日发生了什么",
        f"what happened in {moment:%B %Y}?",
    ):
        words = {word for window in asked(question, at("2023-11-01")) for word in window.words}
        assert words & set(meant), question
    # another day of that month is not that day
    other = asked(f"what happened on {moment:%B} 28, 2023?", at("2023-11-01"))
    assert not {word for window in other for word in window.words} & set(meant)


@pytest.mark.parametrize("far", [1e30, -1e30, float("nan"), float("inf"), 253402300799.0, -6.2e10])
def test_clocks_that_are_far_off_do_no_harm(far: float) -> None:
    text = "tomorrow, yesterday, last month, last year, 999 years ago, last Sunday, 昨天, in May"
    assert days_meant(text, far)
    assert windows_asked(text, asked_at=far)
