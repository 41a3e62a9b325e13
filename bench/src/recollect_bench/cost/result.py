"""What a run of the cost bench measured: figures by window, pooled and by transcript.

Owns the names of figures, the floors and the aims. Must never print what was said. Always holds:
cost is relative to plain compaction on the same transcript in the same run; pooled figures leave
held-out transcripts out.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.compaction.prompts import PROGRESS_HEADING, REQUIRED_HEADINGS
from recollect.values.message import Role
from recollect.values.model import Answer, Prompt
from recollect.values.request import Usage
from recollect_bench.cost.data import BYTES_A_TOKEN, count_bytes
from recollect_bench.cost.strategies import SUMMARY_TOKENS, Naming, Tally
from recollect_bench.result import BenchResult

OURS: Final = "recollect"
PLAIN: Final = "plain"
OPENCLAW: Final = "openclaw"
STRATEGIES: Final = (OURS, PLAIN, OPENCLAW)
MEASURES: Final = ("cost", "useful", "recovered", "retention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What has to be reached, and what should be."""

    floor: float
    aim: float

    def met(self, name: str, value: float) -> bool:
        """Whether a figure reaches it: of cost less is better."""
        return value <= self.floor if name.startswith("cost") else value >= self.floor


FLOORS: Final[Mapping[str, Floor]] = {
    "cost_64k": Floor(floor=1.12, aim=1.0),
    "cost_128k": Floor(floor=1.08, aim=1.0),
    "cost_200k": Floor(floor=1.04, aim=1.0),
    "useful_64k.pi_before": Floor(floor=0.3, aim=0.6),
    "useful_64k.pi_large": Floor(floor=0.45, aim=0.6),
    "recovered_64k": Floor(floor=0.55, aim=0.8),
    "recovered_128k": Floor(floor=0.58, aim=0.8),
    "recovered_200k": Floor(floor=0.47, aim=0.8),
}
"""Retention must not be below plain compaction's on any transcript, either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One strategy on one transcript in one window."""

    transcript: str
    held_out: bool
    window_tokens: int
    strategy: str
    tally: Tally = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostResult(BenchResult):
    """A run; `replays` are for the table and the picture."""

    replays: tuple[Replay, ...] = field(default=(), repr=False)

    def value(self, strategy: str, measure: str, window_tokens: int, transcript: str = "") -> float:
        """A figure, NaN where the run has none."""
        name = figure_name(measure, window_tokens, transcript)
        if strategy == OURS:
            return self.figures.get(name, math.nan)
        return self.baselines.get(f"{strategy}.{name}", math.nan)


def figure_name(measure: str, window_tokens: int, transcript: str = "") -> str:
    """As `--json` prints it."""
    short = f"{measure}_{window_tokens // 1000}k"
    return f"{short}.{transcript}" if transcript else short


def summed_up(replays: Sequence[Replay], notes: Sequence[str]) -> CostResult:
    """All figures of these replays."""
    figures: dict[str, float] = {}
    baselines: dict[str, float] = {}
    windows = dict.fromkeys(one.window_tokens for one in replays)
    for window in windows:
        for strategy in STRATEGIES:
            some = [r for r in replays if (r.window_tokens, r.strategy) == (window, strategy)]
            if not some:
                continue
            into = figures if strategy == OURS else baselines
            before = "" if strategy == OURS else f"{strategy}."
            for name, value in _figures(some, replays, window):
                into[before + name] = round(value, 4)
    return CostResult(
        bench="cost",
        figures=figures,
        baselines=baselines,
        notes=tuple(notes),
        replays=tuple(replays),
    )


def _figures(
    some: Sequence[Replay], replays: Sequence[Replay], window: int
) -> Iterable[tuple[str, float]]:
    plain = {
        r.transcript: r.tally.cost
        for r in replays
        if r.strategy == PLAIN and r.window_tokens == window
    }
    pooled = [one for one in some if not one.held_out] or list(some)
    yield from _measured(pooled, plain, window, "")
    for one in some:
        yield from _measured([one], plain, window, one.transcript)


def _measured(
    some: Sequence[Replay], plain: Mapping[str, float], window: int, transcript: str
) -> Iterable[tuple[str, float]]:
    tallies = [one.tally for one in some]
    ratios = [one.tally.cost / plain[one.transcript] for one in some]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    yield figure_name("cost", window, transcript), mean
    left = sum(tally.left for tally in tallies)
    if left:
        recovered = sum(tally.recovered for tally in tallies)
        yield figure_name("recovered", window, transcript), recovered / left
    relied = sum(tally.relied for tally in tallies)
    if relied:
        useful = sum(tally.useful for tally in tallies)
        yield figure_name("useful", window, transcript), useful / relied
    references = sum(tally.references for tally in tallies)
    if references:
        present = sum(tally.present for tally in tallies)
        yield figure_name("retention", window, transcript), present / references
    if transcript:
        return
    yield figure_name("left", window), left
    yield figure_name("relied", window), relied
    sent = sum(tally.sent_tokens for tally in tallies)
    read = sum(tally.read_tokens for tally in tallies)
    yield figure_name("cached", window), read / sent


def misses(result: CostResult) -> list[str]:
    """Floors that a run does not reach, in words."""
    told = []
    for name, floor in FLOORS.items():
        value = result.figures.get(name)
        if value is not None and not floor.met(name, value):
            told.append(f"{name} is {value:.3f}, its floor {floor.floor:g}")
    for name, value in result.figures.items():
        if name.startswith("retention_") and "." in name:
            other = result.baselines.get(f"{PLAIN}.{name}")
            if other is not None and value < other:
                told.append(f"{name} is {value:.3f}, plain compaction's {other:.3f}")
    return told


# A stand-in for the model that summarises: it notes the most named identifiers, and no more.
#
# Owns the mock of the study: identifiers weighed by who named them, a hundred of them kept, the
# text as long as two real summaries were; what the summary before named fades. It is the same for
# every strategy, so that what differs is the strategy. Must never look at what comes later.


MOST_NAMES: Final = 100
FADING: Final = 0.7
ASK_WORDS: Final = 30
_WEIGHTS: Final[dict[Role, float]] = {"user": 4.0, "assistant": 2.0, "tool": 0.25, "system": 0.0}
_PATH_WEIGHT: Final = 1.5
"""These four are the study's (notes/cost.md)."""
_WRITTEN_SHARE: Final = 3 / 16
"""Of the room that a prompt gives: 1,500 of a summary's 8,000, half of it for half a turn."""
_SHORTER: Final = 3
"""No summary is over a third of what it summarises."""
_MARK: Final = re.compile(r"note (\d+) of this stand-in")
_TAGGED: Final = re.compile(
    r"<(conversation|previous-summary|partial-summary)>\n(.*?)\n</\1>", re.DOTALL
)
_LABEL: Final = re.compile(
    r"^\[(User|Assistant|Assistant thinking|Assistant tool calls|Tool result|Earlier summary)\]: ",
    re.MULTILINE,
)
_PROSE: Final = (
    "work went on with what was asked and found so far while some of it stays open until more is "
    "known about how parts behave under load after changes were made in places that matter most"
)


class NoteTaker:
    """Keeps what each note weighed, so that the next one can go on from it."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming
        self._weights: list[dict[str, float]] = []

    def note(
        self,
        said: Iterable[tuple[Role, str]],
        before: Iterable[str] = (),
        *,
        most_tokens: int = SUMMARY_TOKENS,
    ) -> str:
        """A note of what was said, going on from the notes before."""
        earlier = [self._weights[int(at)] for text in before for at in _MARK.findall(text)[:1]]
        weights: dict[str, float] = {}
        for one in earlier:
            for name, weight in one.items():
                weights[name] = weights.get(name, 0.0) + FADING * weight
        ask = self._add(weights, said)
        return self._written(weights, most_tokens, ask)

    def merged(self, notes: Iterable[str], *, most_tokens: int = SUMMARY_TOKENS) -> str:
        """One note of several parts of the same conversation."""
        weights: dict[str, float] = {}
        for text in notes:
            for at in _MARK.findall(text)[:1]:
                for name, weight in self._weights[int(at)].items():
                    weights[name] = weights.get(name, 0.0) + weight
        return self._written(weights, most_tokens)

    def _add(self, weights: dict[str, float], said: Iterable[tuple[Role, str]]) -> str:
        """Weigh what was named; the plain words of the newest ask, which every summary tells."""
        ask = ""
        for role, text in said:
            if role == "user":
                ask = " ".join([word for word in text.split() if _is_plain(word)][:ASK_WORDS])
            for name in sorted(self._naming.names_in(text)):
                weight = _WEIGHTS[role] * (_PATH_WEIGHT if "/" in name else 1.0)
                weights[name] = weights.get(name, 0.0) + weight
        return ask

    def _written(self, weights: dict[str, float], most_tokens: int, ask: str = "") -> str:
        """Under the headings that a summary must have, identifiers where work is told."""
        self._weights.append(weights)
        lines = [*REQUIRED_HEADINGS[:-1], *([ask] if ask else []), PROGRESS_HEADING]
        lines[1:1] = [f"This is note {len(self._weights) - 1} of this stand-in."]
        left = BYTES_A_TOKEN * most_tokens - len("\n".join(lines).encode())
        for name in sorted(weights, key=lambda name: -weights[name])[:MOST_NAMES]:
            left -= len(name.encode()) + 3
            if left < 0:
                break
            lines.append(f"- {name}")
        if left > BYTES_A_TOKEN:
            lines.insert(2, _prose(left - 1, seed=len(self._weights)))
        return "\n".join(lines)


def _is_plain(word: str) -> bool:
    return word.isalpha() and word.islower()


def _prose(chars: int, *, seed: int) -> str:
    """Words that name nothing, so many characters of them."""
    dice = random.Random(f"note:{seed}")
    held = _PROSE.split()
    words = [dice.choice(held) for _ in range(chars // 3)]
    return " ".join(words)[:chars]


class NotingModel:
    """The same as a model that the engine asks; each call is billed."""

    def __init__(self, taker: NoteTaker, billed: Callable[[int, int], None]) -> None:
        self._taker = taker
        self._billed = billed

    @property
    def name(self) -> str:
        """Its name."""
        return "stand-in"

    @property
    def window_tokens(self) -> int | None:
        """As large as the conversation's own model's."""
        return None

    async def ask(self, prompt: Prompt) -> Answer:
        """A note of what the prompt holds."""
        asked = count_bytes(prompt.system) + count_bytes(prompt.text)
        tagged = [(found[1], found[2]) for found in _TAGGED.finditer(prompt.text)]
        material = sum(count_bytes(text) for _, text in tagged)
        most = min(
            SUMMARY_TOKENS,
            int(prompt.max_output_tokens * _WRITTEN_SHARE),
            material // _SHORTER,
        )
        parts = [text for tag, text in tagged if tag == "partial-summary"]
        if parts:
            text = self._taker.merged(parts, most_tokens=most)
        else:
            said = [one for tag, held in tagged if tag == "conversation" for one in _spoken(held)]
            before = [held for tag, held in tagged if tag == "previous-summary"]
            text = self._taker.note(said, before, most_tokens=most)
        self._billed(asked, count_bytes(text))
        usage = Usage(input_tokens=asked, output_tokens=count_bytes(text))
        return Answer(text=text, usage=usage)

    async def close(self) -> None:
        """Nothing to give back."""


def _spoken(written: str) -> Iterator[tuple[Role, str]]:
    """Who said what, from a conversation that was written down for a model."""
    found = list(_LABEL.finditer(written))
    ends = [one.start() for one in found[1:]] + [len(written)]
    for label, end in zip(found, ends, strict=True):
        role: Role = "assistant"
        if label[1] == "User":
            role = "user"
        elif label[1] == "Tool result":
            role = "tool"
        yield role, written[label.end() : end]
