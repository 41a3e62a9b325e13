"""Requests, fragments, corrections and plain facts: what becomes of each, by rules alone.

The cases were written before the rules were looked at, every other one held out: rules may be
mended by the first of each pair, never by the second, whose least shares say how far that carries.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import pytest

from recollect.facts.extract import extract
from recollect.facts.history import Versions
from recollect.facts.reconcile import settle
from recollect.values.fact import Fact, FactId
from recollect.values.message import EntryKey, MessageId
from recollect.values.segment import Segment, SegmentId

T = TypeVar("T")
REQUESTS: Final = (
    "can you make it use port 8080?",
    "Could you switch the worker over to Redis streams and see if the lag goes away?",
    "let's check whether the migration ran on staging",
    "please add a retry of 3 attempts to the fetcher",
    "Let's try Python 3.13 and see what breaks",
    "I need you to rename UserStore to AccountStore everywhere",
    "would you mind looking at why the build takes 12 minutes?",
    "Set the log level to debug and run it again.",
    "go ahead and bump the version to 2.4.1",
    "I want you to write a test for the parser with a 10 MB input",
    "now run the tests in tests/unit with -x",
    "Show me how the config in settings.yaml is loaded",
    "maybe try with a timeout of 60 seconds?",
    "What happens if we set max_connections to 500?",
    "Can we move the cache to Memcached or is that too much work?",
    "make the button blue and put it at the top right",
    "Add an endpoint /health that returns 200",
    "how about using Celery for the queue?",
    "I'd like a summary of what changed in release 1.9",
    "just delete the folder build/ and start over",
    "Let's look at src/app/main.py first, then decide",
    "Please fix the failing test, it expects 42 but gets 41",
    "Use the second approach for this one",
    "I was hoping you could check the nginx config on web-2",
)
FRAGMENTS: Final = (
    "is set to 30s",
    "because of that",
    "the second one",
    "and then on port 9090",
    "which runs on version 14",
    "but only for staging",
    "was changed to eu-west-1",
    "uses the other one",
    "with a limit of 100 requests",
    "so it should be 5000 instead",
    "it depends on that",
    "that's what we always use",
    "They prefer the first",
    "only on Fridays",
    "Otherwise it stays at 10",
    "the same as before, version 3",
)
# what was said, what is said then, words of the first that may not stand, a word of the second
CORRECTIONS: Final = (
    ("The database listens on port 5432.", "no, it's 5433 now", "5432", "5433"),
    ("We host the site on Heroku.", "actually we moved to Fly.io last week", "Heroku", "Fly"),
    (
        "We decided to use Kafka for events.",
        "scratch that, we'll use NATS for events",
        "Kafka",
        "NATS",
    ),
    (
        "Our staging URL is https://stage.acme.test",
        "Correction: our staging URL is https://staging.acme.test",
        "//stage.",
        "staging.acme.test",
    ),
    ("The API timeout is 30 seconds.", "sorry, I meant 45 seconds for the API timeout", "30", "45"),
    (
        "I prefer tabs for indentation.",
        "Actually I prefer spaces for indentation.",
        "tabs",
        "spaces",
    ),
    (
        "Remember that the release is on Tuesday.",
        "the release is on Thursday, not Tuesday",
        "on Tuesday",
        "Thursday",
    ),
    ("Our backend runs on Django 4.2.", "we're on Django 5.1 now", "4.2", "5.1"),
    ("My name is Anna.", "It's Hannah, not Anna.", "Anna.", "Hannah"),
    ("The worker pool size is 8.", "that's wrong, the worker pool size is 16", "is 8", "16"),
    ("We use npm in this repo.", "we switched from npm to pnpm", "npm in this", "pnpm"),
    (
        "The primary region is us-east-1.",
        "we no longer use us-east-1, the primary region is eu-central-1",
        "is us-east-1",
        "eu-central-1",
    ),
    (
        "Always run black before committing.",
        "forget about black, always run ruff before committing",
        "run black",
        "ruff",
    ),
    (
        "The deploy key lives in /etc/deploy/key.",
        "The deploy key was moved to /srv/keys/deploy.",
        "/etc/deploy",
        "/srv/keys",
    ),
    ("Redis runs on port 6379.", "wait, Redis is on 6380", "6379", "6380"),
    ("I live in Lisbon.", "I moved to Porto in May.", "Lisbon", "Porto"),
    (
        "The team lead is Marcus.",
        "Marcus left, Priya is the team lead now",
        "lead is Marcus",
        "Priya",
    ),
    (
        "We decided to go with GraphQL for the public API.",
        "we changed our mind: REST for the public API",
        "GraphQL",
        "REST",
    ),
    ("The cron job runs at 02:00.", "It runs at 03:30 now, not 02:00.", "at 02:00.", "03:30"),
    ("We use MySQL 8.", "no wait, we use MariaDB", "MySQL", "MariaDB"),
    (
        "The frontend is written in Vue.",
        "The frontend isn't Vue any more, it's Svelte.",
        "written in Vue",
        "Svelte",
    ),
    ("The max upload size is 10 MB.", "make that 25 MB for the max upload size", "10 MB", "25"),
    (
        "The bot's default language is English.",
        "The bot's default language has been changed to German.",
        "is English",
        "German",
    ),
    (
        "Our CI runs on Jenkins.",
        "Our CI doesn't run on Jenkins any more, we moved it to GitHub Actions",
        "runs on Jenkins.",
        "GitHub Actions",
    ),
)
FACTS: Final = (
    ("Our production database is PostgreSQL 16.", "PostgreSQL 16"),
    ("We decided to keep the monolith until 2027.", "monolith"),
    ("I prefer short answers without bullet points.", "short answers"),
    ("Please remember that Anna is allergic to peanuts.", "peanuts"),
    ("The service listens on port 7070. Can you restart it?", "7070"),
    ("Never push directly to main.", "main"),
    ("From now on always answer in French.", "French"),
    ("The config file is at /etc/acme/app.toml, please open it.", "/etc/acme/app.toml"),
    ("Let's go with Terraform for the infrastructure.", "Terraform"),
    ("Our API rate limit is 100 requests per minute.", "100 requests"),
    ("The mobile app uses React Native 0.74.", "0.74"),
    ("I work at a small hospital in Leeds.", "hospital"),
    ("Don't use any emoji in commit messages.", "emoji"),
    ("We agreed to drop support for Node 16.", "Node 16"),
    ("The nightly backup goes to s3://acme-backups/nightly.", "s3://acme-backups"),
    ("My manager is called Teresa Huang.", "Teresa"),
    ("Staging is deployed from the branch develop.", "develop"),
    ("The session cookie lifetime is 14 days. Let's see if we can shorten it.", "14 days"),
    ("We're going to use Stripe for payments.", "Stripe"),
    ("Our style guide requires 4-space indentation.", "4-space"),
    ("Remember: invoices are due within 14 days.", "invoices"),
    ("The build is done with Bazel.", "Bazel"),
    ("I use Neovim on Arch Linux.", "Neovim"),
    ("The default branch of the repo is trunk.", "trunk"),
)


def of_half(given: tuple[T, ...], half: str) -> tuple[T, ...]:
    return given[0 if half == "tune" else 1 :: 2]


@dataclass
class Memory:
    """What a session's user said, read message by message."""

    facts: dict[FactId, Fact] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)

    def hear(self, text: str) -> None:
        number = len(self.segments)
        segment = Segment(
            id=SegmentId(f"s:{number}"),
            session="s",
            key=EntryKey(f"s:{number}"),
            message_id=MessageId(f"m:{number}"),
            role="user",
            text=text,
            tokens=len(text) // 4,
            said_at=60.0 * number + 100,
            source="request",
            trust="high",
            tool=None,
        )
        read = extract([segment], self.segments, model=None, max_output_tokens=10, now=1e6)
        for draft in asyncio.run(read).drafts:
            mine = replace(draft, session="s")
            known = Versions(tuple(self.facts.values()))
            done = settle(mine, self.current(), now=1e6, history=known.of(mine))
            self.facts.update((one.id, one) for one in done.written)
        self.segments.append(segment)

    def current(self) -> list[Fact]:
        return [one for one in self.facts.values() if one.current]


def said(*texts: str) -> list[str]:
    memory = Memory()
    for text in texts:
        memory.hear(text)
    return [one.content for one in memory.current()]


@pytest.mark.parametrize("text", [*REQUESTS, *FRAGMENTS])
def test_a_request_or_a_fragment_is_no_fact(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(("half", "least"), [("tune", 11), ("held out", 9)])
def test_what_is_stated_plainly_is_found(half: str, least: int) -> None:
    found = [any(word in one for one in said(text)) for text, word in of_half(FACTS, half)]
    assert sum(found) >= least, found


@pytest.mark.parametrize(("half", "least", "most_standing"), [("tune", 9, 2), ("held out", 7, 5)])
def test_a_correction_closes_what_it_corrects(half: str, least: int, most_standing: int) -> None:
    """`least` of twelve are found at all; so many leave standing what they correct."""
    found, standing = 0, []
    for first, then, old, new in of_half(CORRECTIONS, half):
        now = said(first, then)
        found += any(new in one for one in now)
        if any(old in one and new not in one for one in now):
            standing.append(then)
    assert found >= least
    assert len(standing) <= most_standing, standing
