"""Makes the noise that cases are buried in, from a seed.

Owns how many messages of which family there are, and what stands in their templates. Must never
depend on anything but count and seed. Always holds: exactly as many messages as were asked for;
loops come in runs, as a model that is stuck says them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Final

from recollect.values.message import Role
from recollect.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect_bench.facts.halves import BOTH, TUNE
from recollect_bench.facts.noise_chinese import CHINESE
from recollect_bench.facts.noise_families import (
    LOOPS,
    RECALLED,
    RECALLED_STATEMENTS,
    SPEECH,
    Family,
)
from recollect_bench.facts.noise_tools import TOOLS

FAMILIES: Final = (*SPEECH, *TOOLS, *CHINESE)
LOOP: Final = "loops"
LOOP_SHARE: Final = 0.15
"""Of all noise; with eight sentences in 10,000 messages each comes near 200 times."""
LOOP_RUN: Final = 40
"""The longest run of one sentence; the next run of it is in another session."""

_WORDS: Final = tuple(
    """
    relay ledger vault beacon parser orchid quartz falcon harbor mosaic pylon sprite tundra walnut
    zephyr cobalt ember fjord glacier hazel indigo jasper kernel lattice meadow nectar onyx prism
    quiver raven saffron thistle umber velvet willow xenon yonder zinc anchor bramble
    """.split()  # noqa: SIM905 - a list of them would take a page
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A message that holds nothing worth keeping."""

    family: str
    role: Role
    text: str = field(repr=False)
    tool: str | None = None


class _Fillers(Mapping[str, str]):
    """What a template's names stand for; another value each time a name is asked for."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __getitem__(self, name: str) -> str:
        rng = self._rng
        if name == "word":
            return rng.choice(_WORDS)
        if name == "recalled":
            return recalled_block(rng)
        if name == "path":
            return f"src/{rng.choice(_WORDS)}/{rng.choice(_WORDS)}"
        if name == "pkg":
            return f"{rng.choice(_WORDS)}-{rng.choice(_WORDS)}"
        if name == "hash":
            return f"{rng.getrandbits(28):07x}"
        return _number(name, rng)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _number(name: str, rng: random.Random) -> str:
    if name == "n":
        return str(rng.randint(1, 9999))
    if name == "pct":
        return str(rng.randint(0, 100))
    if name == "ms":
        return f"{rng.randint(0, 999):03d}"
    if name == "port":
        return str(rng.choice((80, 443, 3000, 5432, 6379, 8000, 8080, 8443, 9000, 9090)))
    if name == "ver":
        return f"{rng.randint(0, 20)}.{rng.randint(0, 40)}.{rng.randint(0, 9)}"
    if name == "host":
        return f"10.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}"
    if name == "time":
        return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
    if name == "date":
        return f"2025-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    raise KeyError(name)


def fill(template: str, rng: random.Random) -> str:
    """The template with something in place of its names."""
    return Template(template).substitute(_Fillers(rng))


def recalled_block(rng: random.Random, statements: tuple[str, ...] = ()) -> str:
    """What memory puts into a view: plausible facts, or these, between the block's tags."""
    said = statements or tuple(
        fill(one, rng) for one in rng.sample(RECALLED_STATEMENTS, rng.randint(1, 4))
    )
    lines = [f"- [decision] {one}" for one in said]
    return "\n".join([BLOCK_OPENING, "Known facts:", *lines, BLOCK_CLOSING])


def worded(templates: Sequence[str], half: str) -> Sequence[str]:
    """The templates of a half: every other one is held out, as half of the cases is."""
    if half == BOTH:
        return templates
    return templates[0 if half == TUNE else 1 :: 2]


def loose_noise(count: int, rng: random.Random, half: str = BOTH) -> list[Noise]:
    """So many messages of all families, in no order."""
    shares = [family.share for family in FAMILIES]
    chosen = rng.choices(FAMILIES, weights=shares, k=count)
    return [_message(family, rng, half) for family in chosen]


def looped_noise(count: int, rng: random.Random, half: str = BOTH) -> list[list[Noise]]:
    """So many messages in runs of one sentence each."""
    sentences = worded(LOOPS, half)
    runs: list[list[Noise]] = []
    left = count
    while left > 0:
        size = min(left, rng.randint(LOOP_RUN // 2, LOOP_RUN))
        said = sentences[len(runs) % len(sentences)]
        runs.append([Noise(family=LOOP, role="assistant", text=said)] * size)
        left -= size
    return runs


def _message(family: Family, rng: random.Random, half: str) -> Noise:
    templates = worded(family.templates, half)
    lines = 1 if family.lines is None else rng.randint(*family.lines)
    body = [rng.choice(templates) for _ in range(lines)]
    written = [family.head, *body, family.tail]
    text = "\n".join(fill(line, rng) for line in written if line)
    return Noise(family=family.name, role=family.role, text=text, tool=family.tool)


def is_recalled(family: str) -> bool:
    """Whether messages of this family carry what memory said."""
    return family == RECALLED
