"""A client talks far beyond its provider's window, and never hears of it.

Some 300,000 tokens of words and tool results go through the gateway, from Claude Code or from a
loop on an official SDK, to a provider that refuses what is over its window. Facts are told in the
first fifth and asked for at the end, when more than the window lies between: counted is how many
stand in the request that reaches the provider, and how many of them only because memory put them
there.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from recollect.core.formats.summaries import PI_CLOSING, PI_OPENING
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect_bench.live.feed import folded, holds
from recollect_bench.live.sessions import Need
from tools.clients.agents import ClaudeCode, ClaudeTalk
from tools.clients.checks import WIRES
from tools.clients.lab import Lab, Stage, staged
from tools.clients.sdks import SdkTalk

FACTS: Final = 40
WANTED_SHARE: Final = 0.85
"""So many of them have to stand in the requests that ask for them: 34."""
LEFT_SHARE: Final = 0.5
"""At least so many must have left the view by then. A view that is cut keeps what has to do with
the question at hand, so that some stay."""
TOLD_SHARE: Final = 0.2
"""The first of the talk, in which facts are told."""
TOOL_EVERY: Final = 6
"""So often a log is read by a tool; else the user pastes it, since words cannot be shortened."""
WINDOWS: Final = (16_000, 32_000, 200_000)
SDK_WINDOWS: Final = (16_000, 200_000)
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
_FILE_LINES: Final = 100
_BLOCK: Final = re.compile(f"{re.escape(BLOCK_OPENING)}.*?{re.escape(BLOCK_CLOSING)}", re.DOTALL)
_SUMMARY: Final = re.compile(f"{re.escape(PI_OPENING)}.*?{re.escape(PI_CLOSING)}", re.DOTALL)


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


class Talker(Protocol):
    """A client that holds a conversation and has a shell."""

    project: Path
    """Where its shell runs."""

    def turn(self, words: str) -> str | None:
        """One turn with its tools, to the end; the error that the client saw."""
        ...


Talking: TypeAlias = Callable[[Stage], AbstractContextManager[Talker]]
"""Starts a client at a stage."""


@dataclass(slots=True, kw_only=True)
class LongTalk:
    """What a long conversation showed."""

    client: str
    window_tokens: int
    facts: int = FACTS
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
    facts_in_view_by_recall: int = 0
    """Of those, such as stand in a recalled block and nowhere else: they had left the view."""
    facts_in_summary: int = 0
    """Such as had left the view, too, and were carried along beside a summary."""
    missing: list[str] = field(default_factory=list)
    compacted_by_client: int = 0
    seconds: float = 0.0

    @property
    def faults(self) -> Iterator[str]:
        """What is not as it must be."""
        yield from self.errors
        yield from (f"refused: {rule}" for rule in dict.fromkeys(self.refused))
        if self.facts_asked < max(1, self.facts):
            yield f"only {self.facts_asked} of {self.facts} facts were asked for"
        if self.facts_there < WANTED_SHARE * self.facts:
            yield f"{self.facts_there} of {self.facts_asked} facts stand in the request"
        brought = self.facts_in_view_by_recall + self.facts_in_summary
        left = self.facts_asked - (self.facts_there - brought)
        if left < LEFT_SHARE * self.facts:
            yield f"only {left} of {self.facts_asked} facts had left the view: they show nothing"
        if brought < WANTED_SHARE * left:
            yield f"of {left} facts that had left the view memory brought {brought}"
        if self.compacted_by_client:
            yield f"the client compacted {self.compacted_by_client} times by itself"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def planted(rng: random.Random, count: int) -> list[PlantedFact]:
    """Facts with values that nothing else holds."""
    facts = []
    for at in range(count):
        kind, form = _KINDS[at % len(_KINDS)]
        letters = "".join(rng.choices(_LETTERS, k=2))
        value = form.format(letters, rng.randrange(1_000, 9_999))
        facts.append(PlantedFact(subject=kind.format(_SUBJECTS[at // len(_KINDS)]), value=value))
    return facts


def long_talk(
    talking: Talking,
    folder: Path,
    *,
    client: str,
    window_tokens: int,
    summaries: bool = False,
    tokens: int = 300_000,
    facts: int = FACTS,
    seed: int = 7,
    **settings: Any,
) -> LongTalk:
    """Run one conversation and count."""
    weak = "weak" if summaries else "none"
    found = LongTalk(client=client, window_tokens=window_tokens, facts=facts, summaries=weak)
    if summaries:
        settings["gateway.summaries"] = "client"
    rng = random.Random(seed)
    began = time.monotonic()
    server = {"window_tokens": window_tokens}
    with staged(folder, server=server, window_tokens=window_tokens, **settings) as stage:
        with talking(stage) as talker:
            _converse(stage, talker, rng, found, tokens)
        _count(stage, found)
    found.seconds = round(time.monotonic() - began, 1)
    return found


def by_claude_code(lab: Lab, *, bare: bool = False) -> Talking:
    """Claude Code; `bare`: with the smallest prompt that it has."""

    @contextmanager
    def talking(stage: Stage) -> Iterator[Talker]:
        home = ClaudeCode(lab=lab, folder=stage.folder / "claude", url=stage.url)
        with home.talk(*(("--bare",) if bare else ())) as talk:
            yield _ClaudeTalker(home.project, talk)

    return talking


def by_sdk(python: Path, sdk: str) -> Talking:
    """A loop on an official SDK, which this interpreter has."""

    def talking(stage: Stage) -> SdkTalk:
        return SdkTalk(python, sdk, stage.url, stage.folder / "sdk")

    return talking


@dataclass(slots=True)
class _ClaudeTalker:
    project: Path
    talk: ClaudeTalk

    def turn(self, words: str) -> str | None:
        ended = self.talk.say(words)
        return str(ended.get("result"))[:160] if ended.get("is_error") else None


def _converse(
    stage: Stage, talker: Talker, rng: random.Random, found: LongTalk, tokens: int
) -> None:
    """Work, with facts told in its first part; when all is said they are asked for, one a turn."""
    untold, told = planted(rng, found.facts), list[PlantedFact]()
    said = 0
    while said < tokens or told or untold:
        found.turns += 1
        words = _work(talker, rng, found.turns)
        # a view keeps the conversation's first message, so that no fact is told there
        if untold and found.turns > 1 and said >= len(told) / found.facts * TOLD_SHARE * tokens:
            told.append(untold.pop(0))
            words = f"{told[-1].told} {words}"
        _say(talker, words, found)
        said = len(_newest(stage)) // 4
        if told and not untold and said >= tokens:
            _ask(stage, talker, told.pop(0), found)
        if found.turns % 20 == 0:
            facts = f"{found.facts_there}/{found.facts_asked} facts"
            at = f"{found.turns} turns, {said:,} tokens, {facts}"
            sys.stderr.write(f"{found.client} {found.window_tokens:,}: {at}\n")
        if len(found.errors) > 5:
            return


def _work(talker: Talker, rng: random.Random, turn: int) -> str:
    """Chatter, and a log that is large enough to fill windows, pasted or to be read."""
    names = rng.sample(_NAMES, 2)
    lines = [
        f"{rng.choice(_NAMES)}.{rng.choice(_NAMES)}: step {line} took {rng.randrange(9_999)} ms"
        for line in range(rng.randrange(_FILE_LINES // 2, 2 * _FILE_LINES))
    ]
    log = "\n".join(lines)
    chatter = " ".join(rng.sample(_CHATTER, 2)).format(*names)
    if turn % TOOL_EVERY:
        return f"{chatter} This is the log:\n{log}"
    (talker.project / f"log{turn}.txt").write_text(log, encoding="utf-8")
    return f"{chatter} Then read the log. TOOL:cat log{turn}.txt"


def _say(talker: Talker, words: str, found: LongTalk) -> None:
    error = talker.turn(words)
    if error is not None:
        found.errors.append(f"turn {found.turns}: {error}")


def _ask(stage: Stage, talker: Talker, fact: PlantedFact, found: LongTalk) -> None:
    """Ask for a fact; whether it stands in what the provider then got, and by whom."""
    _say(talker, fact.asked, found)
    found.facts_asked += 1
    asked = [one for one in stage.server.asked if fact.asked.encode() in one.content]
    said = "\n".join(_texts(asked[-1].body)) if asked else ""
    need = Need(texts=(fact.value,))
    if not holds(folded(said), need):
        found.missing.append(f"turn {found.turns}: {fact.subject}")
        return
    found.facts_there += 1
    without_blocks = _BLOCK.sub("", said)
    if not holds(folded(without_blocks), need):
        found.facts_in_view_by_recall += 1
    elif not holds(folded(_SUMMARY.sub("", without_blocks)), need):
        found.facts_in_summary += 1


def _texts(value: Any) -> Iterator[str]:
    """Every text in a request, whatever its format."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _newest(stage: Stage) -> bytes:
    """The last request that the client sent."""
    sent = stage.before.crossings[-1].sent
    return bytes(sent[sent.rfind(b"\r\n\r\n") + 4 :])


def _count(stage: Stage, found: LongTalk) -> None:
    sent = [one for one in stage.before.exchanges() if one.path in WIRES]
    found.tokens_sent = max((len(one.body) // 4 for one in sent), default=0)
    found.errors += [f"status {one.status}" for one in sent if one.status != 200]
    marks = b"Your task is to create a detailed summary"
    found.compacted_by_client = sum(marks in one.body[-65_536:] for one in sent)
    answered = [len(one.body) // 4 for one in stage.behind.exchanges() if one.status == 200]
    found.largest_seen = max(answered, default=0)
    found.overflows = stage.server.overflows
    found.summaries_asked = stage.provider.summaries
    found.refused = list(stage.provider.refused)


def as_line(found: LongTalk) -> str:
    """One line of a table."""
    return (
        f"{found.client:9} window {found.window_tokens:>7,}  summaries {found.summaries:4}  "
        f"{found.turns} turns  "
        f"{found.tokens_sent:,} tokens sent, at most {found.largest_seen:,} seen  "
        f"{len(found.errors)} errors  {found.overflows} overflows recovered  "
        f"{found.summaries_asked} summaries  facts {found.facts_there}/{found.facts_asked}, "
        f"{found.facts_in_view_by_recall} by recall, {found.facts_in_summary} by a summary  "
        f"{found.seconds:.0f} s"
    )
