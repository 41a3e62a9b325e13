"""Prompts about time and continuation are told from questions with a subject."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from recollect.core.search.moments import Moment, moment_asked
from recollect.core.search.tokenize import tokenize

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)  # a Friday


def asked(prompt: str) -> Moment | None:
    return moment_asked(prompt, now=NOW.timestamp(), zone=UTC)


def day(text: str) -> tuple[float, float]:
    start = datetime.fromisoformat(f"{text}T00:00:00+00:00")
    return start.timestamp(), (start + timedelta(days=1)).timestamp()


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("Where did we leave off?", "last"),
        ("hi, where were we?", "last"),
        ("where were we yesterday?", "last"),
        ("what was the last thing we did?", "last"),
        ("pick up where we left off", "last"),
        ("What was I working on?", "last"),
        ("remind me what I was working on", "last"),
        ("Hi, catch me up", "last"),
        ("Can you bring me up to speed?", "last"),
        ("what's the status?", "last"),
        ("What is the current state of the project?", "last"),
        ("status?", "last"),
        ("catch me up on the importer", "continue"),
        ("what's left?", "open"),
        ("What is still missing?", "open"),
        ("any open points?", "open"),
        ("what's next?", "open"),
        ("Continue with the importer.", "continue"),
        ("ok, let's get back to the theme editor", "continue"),
        ("where did we stop with the invoices?", "continue"),
        ("what did I do today?", "day"),
        ("start where we left off yesterday", "last"),
        ("let's return to the importer", "continue"),
        ("where are we with the importer?", "continue"),
    ],
)
def test_prompts_about_order(prompt: str, kind: str) -> None:
    moment = asked(prompt)
    assert moment is not None
    assert moment.kind == kind


@pytest.mark.parametrize(
    ("prompt", "first"),
    [
        ("what did we do yesterday?", "2026-11-19"),
        ("What did we work on on Wednesday?", "2026-11-18"),
        ("what happened last Friday?", "2026-11-13"),
        ("remind me what we changed the day before yesterday", "2026-11-18"),
        ("what did we get done 3 days ago?", "2026-11-17"),
    ],
)
def test_days(prompt: str, first: str) -> None:
    moment = asked(prompt)
    assert moment is not None
    assert (moment.start, moment.end) == day(first)


def test_days_are_those_of_the_user() -> None:
    tokyo = timezone(timedelta(hours=9))
    late = datetime(2026, 11, 20, 20, tzinfo=UTC)  # already Saturday there
    moment = moment_asked("what did we do yesterday?", now=late.timestamp(), zone=tokyo)
    assert moment is not None
    assert moment.start == datetime(2026, 11, 20, tzinfo=tokyo).timestamp()


@pytest.mark.parametrize(
    "prompt",
    [
        "What did we decide about retries yesterday?",
        "Which port did we agree on last week?",
        "Fix the bug from yesterday.",
        "continue",
        "looks good, go on",
        "What is left padding in CSS?",
        "Return the list instead of printing it, and rename the function to match what it does now",
        "what does the continue statement do?",
        "What's the status code for a missing page?",
        "What is the state of the parser after an error?",
        "Get me the status of order 4711.",
        "Status 500 comes from the proxy",
        "Is the database open?",
        "Return early if the list is empty and log the reason why nothing was imported at all.",
        "Return 404 for unknown users",
        "return errors as problem+json",
        "Resume uploads after a timeout",
        "Move on the tab bar by 2px",
        "Continue to never edit proto/gen",
        "The deploy key moved to kv/deploy last time",
        "Fix the bug we saw last time: importer crashes on empty rows",
        "In the last session I decided: port 5433 for the database",
        "The last step of the pipeline needs a token.",
        "where are we importing settings?",
        "Where were you storing the tokens, in redis?",
    ],
)
def test_other_prompts(prompt: str) -> None:
    assert asked(prompt) is None


@pytest.mark.parametrize("subject", ["upload handler", "theme switcher", "topology", "iterator"])
def test_subject_of_a_continuation_is_whole_words(subject: str) -> None:
    moment = asked(f"continue with the {subject}")
    assert moment is not None
    assert moment.words == frozenset(tokenize(subject))
