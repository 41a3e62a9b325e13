"""The story and the questions about it, as they are in `story.txt` and `probes.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

Half: TypeAlias = Literal["tune", "held-out"]

FIRST_DAY: Final = datetime(2026, 11, 9, tzinfo=UTC)
"""A Monday. The prompts are asked on the morning after the fifth day."""
ASKED_AT: Final = FIRST_DAY + timedelta(days=5, hours=10)
_HERE: Final = Path(__file__).parent
_HALVES: Final[dict[str, Half]] = {"t": "tune", "h": "held-out"}


@dataclass(slots=True, kw_only=True)
class Turn:
    """A prompt, the tools that the agent calls, and its last message."""

    prompt: str
    tools: list[tuple[str, str]] = field(default_factory=list)
    """Each tool with its argument."""
    lines: list[str] = field(default_factory=list)
    """Lines that the output of the last tool contains."""
    task: str = ""
    """What a subagent is asked, and what it answers."""
    result: str = ""
    answer: str = ""
    compacted: bool = False
    """Whether the host compacts before this turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """One session of the agent."""

    name: str
    began_at: datetime
    turns: list[Turn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A prompt that is asked after the week, and what the text that it gets must contain."""

    kind: str
    half: Half
    prompt: str
    needs: tuple[tuple[str, ...], ...] = ()
    """Every group is needed; of a group, one of its alternatives."""

    def is_met(self, text: str) -> bool:
        """Whether a text contains what is needed."""
        plain = plain_text(text)
        return all(any(word in plain for word in group) for group in self.needs)

    def answering(self, text: str) -> int:
        """The number of characters in the sentences that contain something needed."""
        words = [word for group in self.needs for word in group]
        sentences = re.split(r"\n|(?<=[.!?;])\s+", text)
        return sum(len(s) for s in sentences if any(word in plain_text(s) for word in words))


def plain_text(text: str) -> str:
    """A text in lower case, without marks of code and with single spaces."""
    return " ".join(re.sub(r"[`*\"]", "", text).casefold().split())


def read_story(*, most: int | None = None) -> list[Sitting]:
    """The sessions of the week, in order."""
    sittings: list[Sitting] = []
    compacts = False
    for line in _lines("story.txt"):
        mark, _, text = line.partition(" ")
        turns = sittings[-1].turns if sittings else []
        if mark == "##":
            name, day, clock = text.split()
            hours, minutes = map(int, clock.split(":"))
            began_at = FIRST_DAY + timedelta(days=int(day) - 1, hours=hours, minutes=minutes)
            sittings.append(Sitting(name=name, began_at=began_at, turns=[]))
        elif mark == ">":
            turns.append(Turn(prompt=text, compacted=compacts))
            compacts = False
        elif mark == "$":
            for call in text.split(" ; "):
                tool, _, argument = call.partition(" ")
                turns[-1].tools.append((tool, argument))
        elif mark == "|":
            turns[-1].lines.append(text)
        elif mark == "@":
            turns[-1].task = text
        elif mark == "=":
            turns[-1].result = text
        elif mark == "<":
            turns[-1].answer = text
        elif mark == "!!":
            compacts = True
    return sittings[:most]


def read_probes(half: Half | None = None) -> list[Probe]:
    """The prompts of one half, or of both."""
    probes = []
    for line in _lines("probes.txt"):
        kinds, prompt, *needs = (field.strip() for field in line.split(" | "))
        kind, mark = kinds.split()
        for day in range(1, 6):
            weekday = f"{FIRST_DAY + timedelta(days=day - 1):%A}"
            prompt = prompt.replace(f"{{day{day}}}", weekday)
        probe = Probe(kind=kind, half=_HALVES[mark], prompt=prompt, needs=_groups(needs))
        if half in (None, probe.half):
            probes.append(probe)
    return probes


def _groups(needs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    groups = [group.split(" / ") for need in needs for group in need.split(" & ")]
    return tuple(tuple(plain_text(word) for word in group) for group in groups)


def _lines(name: str) -> Iterator[str]:
    for line in (_HERE / name).read_text(encoding="utf-8").splitlines():
        if line and (line.startswith("##") or not line.startswith("#")):
            yield line
