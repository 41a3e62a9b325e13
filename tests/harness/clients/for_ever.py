"""Claude Code talks far beyond its provider's window, and never hears of it.

Some 300,000 tokens of chatter and tool results go through the gateway to a provider that refuses
what is over its window. Facts are told along the way and asked for much later: counted is how many
stand in the request that reaches the provider when they are asked for.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.harness.clients.agents import ClaudeCode, ClaudeTalk
from tests.harness.clients.lab import Lab, Stage, staged

FACTS: Final = 40
WANTED: Final = 34
WINDOWS: Final = (16_000, 32_000, 200_000)
BARE_BELOW_TOKENS: Final = 20_000
"""Claude Code's usual prompt and tools take 14,000 tokens; below this it runs with `--bare`."""
_SUBJECTS: Final = (
    "north crane",
    "billing service",
    "staging database",
    "harbour gate",
    "night build",
    "parcel scanner",
    "customs form",
    "tide sensor",
    "fuel depot",
    "pilot boat",
)
_KINDS: Final = (
    ("the access code of the {}", "{}-{:04d}"),
    ("the port of the {}", "{1:05d}"),
    ("the person who owns the {}", "{0}elle Var{1}"),
    ("the branch for the {}", "fix/{0}-{1}"),
)
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
_CHATTER: Final = (
    "The {0} module reads its settings twice, so look at the loader before you touch {1}.",
    "I renamed the helper in {0}; the tests of {1} still use the old name.",
    "Please keep the public functions of {0} as they are and only change what {1} does inside.",
    "The build of {0} is slow since we added {1}; find out what it does at import.",
    "Check whether {0} closes its files, there was a warning in the log of {1} this morning.",
)
_NAMES: Final = ("loader", "parser", "router", "worker", "cache", "ledger", "index", "queue")
_FILE_LINES: Final = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFact:
    """Something told once, with a value that nothing else holds."""

    subject: str
    value: str

    @property
    def told(self) -> str:
        """How it is told."""
        return f"Remember: {self.subject} is {self.value}."

    @property
    def asked(self) -> str:
        """How it is asked for."""
        return f"What is {self.subject}?"


@dataclass(slots=True, kw_only=True)
class LongTalk:
    """What a long conversation showed."""

    window_tokens: int
    summaries: str
    turns: int = 0
    tokens_sent: int = 0
    """Of the client's last request: what it believes its context to be."""
    largest_seen: int = 0
    """Of the largest request that the provider answered."""
    errors: list[str] = field(default_factory=list)
    """What reached the client that was no answer."""
    refused: list[str] = field(default_factory=list)
    """Rules that requests broke at the provider."""
    overflows: int = 0
    """How often the provider refused a request for its size, unseen by the client."""
    summaries_asked: int = 0
    facts_asked: int = 0
    facts_there: int = 0
    missing: list[str] = field(default_factory=list)
    compacted_by_client: int = 0
    seconds: float = 0.0

    @property
    def faults(self) -> Iterator[str]:
        """What is not as it must be."""
        yield from self.errors
        yield from (f"refused: {rule}" for rule in dict.fromkeys(self.refused))
        if self.facts_there * FACTS < WANTED * self.facts_asked:
            yield f"{self.facts_there} of {self.facts_asked} facts stand in the request"
        if self.compacted_by_client:
            yield f"the client compacted {self.compacted_by_client} times by itself"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def planted(rng: random.Random) -> list[PlantedFact]:
    """Facts with values that nothing else holds."""
    facts = []
    for at in range(FACTS):
        kind, form = _KINDS[at % len(_KINDS)]
        letters = "".join(rng.choices(_LETTERS, k=2))
        value = form.format(letters, rng.randrange(1_000, 9_999))
        facts.append(PlantedFact(subject=kind.format(_SUBJECTS[at // len(_KINDS)]), value=value))
    return facts


def long_talk(
    lab: Lab,
    folder: Path,
    *,
    window_tokens: int,
    summaries: bool = False,
    tokens: int = 300_000,
    seed: int = 7,
    bare: bool = False,
    **settings: Any,
) -> LongTalk:
    """Run one conversation and count; `bare`: with the smallest prompt that Claude Code has."""
    found = LongTalk(window_tokens=window_tokens, summaries="weak" if summaries else "none")
    if summaries:
        settings["gateway.summaries"] = "client"
    rng = random.Random(seed)
    began = time.monotonic()
    server = {"window_tokens": window_tokens}
    with staged(folder, server=server, window_tokens=window_tokens, **settings) as stage:
        home = ClaudeCode(lab=lab, folder=folder / "claude", url=stage.url)
        with home.talk(*(("--bare",) if bare else ())) as talk:
            _converse(stage, home, talk, rng, found, tokens)
        _count(stage, found)
        found.refused = list(stage.provider.refused)
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _converse(
    stage: Stage,
    home: ClaudeCode,
    talk: ClaudeTalk,
    rng: random.Random,
    found: LongTalk,
    tokens: int,
) -> None:
    """Work, with facts told on the way; those told longest ago are asked for from the middle on."""
    facts = planted(rng)
    untold, told = list(facts), list[tuple[int, PlantedFact]]()
    said = 0
    while said < tokens or told or untold:
        found.turns += 1
        words = _work(home, rng, found.turns)
        if untold and found.turns % 2:
            fact = untold.pop(0)
            told.append((said, fact))
            words = f"{fact.told} {words}"
        _say(stage, talk, words, found)
        said = len(_newest(stage)) // 4
        due = told and (said - told[0][0] > tokens / 4 or said >= tokens)
        if due:
            _ask(stage, talk, told.pop(0)[1], found)
        if found.turns % 20 == 0:
            at = f"{found.turns} turns, {said:,} tokens, {found.facts_there}/{found.facts_asked}"
            sys.stderr.write(f"{found.window_tokens:,}: {at} facts\n")
        if len(found.errors) > 5:
            return


def _work(home: ClaudeCode, rng: random.Random, turn: int) -> str:
    """Chatter, and a file to read that is large enough to fill windows."""
    names = rng.sample(_NAMES, 2)
    lines = [
        f"{rng.choice(_NAMES)}.{rng.choice(_NAMES)}: step {line} took {rng.randrange(9_999)} ms"
        for line in range(rng.randrange(_FILE_LINES // 2, 2 * _FILE_LINES))
    ]
    (home.project / f"log{turn}.txt").write_text("\n".join(lines), encoding="utf-8")
    chatter = " ".join(rng.sample(_CHATTER, 2)).format(*names)
    return f"{chatter} Then read the log. TOOL:cat log{turn}.txt"


def _say(stage: Stage, talk: ClaudeTalk, words: str, found: LongTalk) -> None:
    ended = talk.say(words)
    if ended.get("is_error"):
        found.errors.append(f"turn {found.turns}: {str(ended.get('result'))[:160]}")


def _ask(stage: Stage, talk: ClaudeTalk, fact: PlantedFact, found: LongTalk) -> None:
    """Ask for a fact; whether it stands in what the provider then got."""
    _say(stage, talk, fact.asked, found)
    found.facts_asked += 1
    asked = [one for one in stage.server.asked if fact.asked.encode() in one.content]
    if asked and fact.value.encode() in asked[-1].content:
        found.facts_there += 1
    else:
        found.missing.append(f"turn {found.turns}: {fact.subject}")


def _newest(stage: Stage) -> bytes:
    """The last request that the client sent."""
    sent = stage.before.crossings[-1].sent
    return bytes(sent[sent.rfind(b"\r\n\r\n") + 4 :])


def _count(stage: Stage, found: LongTalk) -> None:
    sent = [one for one in stage.before.exchanges() if one.path == "/v1/messages"]
    found.tokens_sent = max((len(one.body) // 4 for one in sent), default=0)
    found.errors += [f"status {one.status}" for one in sent if one.status != 200]
    marks = b"Your task is to create a detailed summary"
    found.compacted_by_client = sum(marks in one.body[-65_536:] for one in sent)
    answered = stage.behind.exchanges()
    found.overflows = sum(b"prompt is too long" in one.reply for one in answered)
    found.largest_seen = max(
        (len(one.body) // 4 for one in answered if one.status == 200), default=0
    )
    found.summaries_asked = sum(b"SUMMARY-MARK" in one.reply for one in answered)


def as_line(found: LongTalk) -> str:
    """One line of a table."""
    return (
        f"window {found.window_tokens:>7,}  summaries {found.summaries:4}  {found.turns} turns  "
        f"{found.tokens_sent:,} tokens sent, at most {found.largest_seen:,} seen  "
        f"{len(found.errors)} errors  {found.overflows} overflows recovered  "
        f"{found.summaries_asked} summaries  facts {found.facts_there}/{found.facts_asked}  "
        f"{found.seconds:.0f} s"
    )
