"""What is said in the conversation: work notes, exact things planted in them, questions at last.

Pure and the same in every run: a seed decides everything, so that two runs differ only by what
the model answers. Always holds: a question never holds what it asks for, and nothing that is
planted occurs anywhere else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import cycle
from typing import Final

ASKED_AT_ONCE: Final = 2
PLANTED_A_TURN: Final = 4
PLANTED_A_PART: Final = 8
QUESTION_TOKENS: Final = 40
"""About what a question and its answer take; only to know when to begin to ask."""

SUBJECTS: Final = (
    "invoice exporter",
    "billing mirror",
    "nightly backup",
    "image resizer",
    "search indexer",
    "mail relay",
    "audit trail",
    "rate limiter",
    "payroll bridge",
    "coupon engine",
    "barcode printer",
    "courier tracker",
    "tax calculator",
    "photo vault",
    "login portal",
    "refund queue",
    "weather feed",
    "loyalty ledger",
    "chat translator",
    "parking meter",
    "badge reader",
    "pallet counter",
    "recipe editor",
    "voice recorder",
    "ticket kiosk",
    "solar monitor",
    "fleet mapper",
    "survey collector",
    "contract signer",
    "menu planner",
    "sensor hub",
    "playlist mixer",
)
"""Each is spoken of once: a question about it has words that no other turn has."""
_KINDS: Final = (
    ("The worker of the {} lives in {}.", "In which file does the worker of the {} live?"),
    ("We pinned the {} to commit {}.", "To which commit did we pin the {}?"),
    ("The {} listens on port {}.", "On which port does the {} listen?"),
    ("The ticket for the {} is {}.", "What is the ticket for the {}?"),
)
_SENTENCES: Final = (
    "{who} went through the {what} again and found nothing that stands out.",
    "The {what} took {n} minutes longer than last week, most of it waiting.",
    "We talked about the {what} for a while; {who} would rather leave it as it is.",
    "{who} compared {n} runs of the {what} and the slow ones all began in the evening.",
    "Nobody has touched the {what} since spring, so {who} will write down how it works.",
    "After the change the {what} used a little less memory, but it starts no faster.",
    "{who} asked whether the {what} could run on a smaller machine; it could, with patience.",
    "There were {n} warnings about the {what} in the morning, and none after lunch.",
    "The {what} is described twice in the handbook, and the two pages do not agree.",
    "Customers do not notice the {what} at all, which {who} takes for a compliment.",
    "{who} wants to see the {what} measured before anybody makes it more clever.",
    "We tried the {what} with {n} documents at once and it kept its order.",
)
_WHAT: Final = (
    "import of old orders",
    "page that lists deliveries",
    "script that cleans the cache",
    "report for the warehouse",
    "form for new suppliers",
    "table of exchange rates",
    "job that sends reminders",
    "preview of the catalogue",
    "check of the stock levels",
    "archive of signed papers",
)
_WHO: Final = ("Marta", "Joon", "Priya", "Anders", "Lucia", "Tomas", "Wanda", "Kofi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Something exact that is said once and asked for much later."""

    exact: str = field(repr=False)
    said: str = field(repr=False)
    asked: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the user says, and what is asked for with it."""

    text: str = field(repr=False)
    asks: tuple[Planted, ...] = field(default=(), repr=False)
    begins_part: bool = False
    """The first of a part: the user goes on with another model here."""


def plan_conversation(
    tokens: int,
    count_tokens: Callable[[str], int],
    *,
    turn_tokens: Sequence[int],
    seed: int = 1,
) -> tuple[Turn, ...]:
    """Turns of at least so many tokens in all, as the model itself counts them.

    `turn_tokens` are the sizes of the notes, one after the other and again from the first. What
    is planted comes first, notes follow, and the questions are last; in a long conversation this
    repeats, and half of what was planted first is asked for at the very end.
    """
    rng = random.Random(seed)
    count_tokens = cache(count_tokens)
    planted = list(plant(rng, _how_many(tokens)))
    per_part = PLANTED_A_PART
    parts = [planted[at : at + per_part] for at in range(0, len(planted), per_part)]
    sizes = cycle(turn_tokens)
    turns: list[Turn] = []
    said = 0
    for number, part in enumerate(parts, start=1):
        until = tokens * number // len(parts) - QUESTION_TOKENS * len(part) // ASKED_AT_ONCE
        waiting = [part[at : at + PLANTED_A_TURN] for at in range(0, len(part), PLANTED_A_TURN)]
        first = True
        while waiting or said < until:
            sentences = [one.said for one in waiting.pop(0)] if waiting else []
            turn = _notes(rng, sentences, count_tokens, next(sizes))
            turns.append(replace(turn, begins_part=first))
            first = False
            said += count_tokens(turn.text)
        # half of the first part is kept for the end: the longest way that there is
        late = part[per_part // 2 :] if number == 1 and len(parts) > 1 else []
        turns += _questions([one for one in part if one not in late])
        said += QUESTION_TOKENS * (len(part) - len(late)) // ASKED_AT_ONCE
    if len(parts) > 1:
        turns += _questions(parts[0][per_part // 2 :])
    return tuple(turns)


def plant(rng: random.Random, count: int) -> Iterator[Planted]:
    """Exact things of every kind, each about a subject of its own."""
    pairs = [(subject, at % len(_KINDS)) for at, subject in enumerate(SUBJECTS)]
    rng.shuffle(pairs)
    if count > len(pairs):
        raise ValueError(f"at most {len(pairs)} things can be planted, not {count}")
    numbers = rng.sample(range(20_000, 60_000), len(pairs))
    for (subject, kind), number in zip(pairs[:count], numbers, strict=False):
        said, asked = _KINDS[kind]
        exact = _exact(kind, subject, number, rng)
        yield Planted(exact=exact, said=said.format(subject, exact), asked=asked.format(subject))


def _exact(kind: int, subject: str, number: int, rng: random.Random) -> str:
    if kind == 0:
        return f"services/{subject.replace(' ', '_')}/worker_{number % 1000:03}.py"
    if kind == 1:
        return f"{rng.getrandbits(48):012x}"
    return str(number) if kind == 2 else f"OPS-{number}"


def _how_many(tokens: int) -> int:
    """Eight for the first 6,000 tokens, then eight for every 10,000."""
    return PLANTED_A_PART * max(1, min(4, round(tokens / 10_000)))


def _notes(
    rng: random.Random,
    planted: Sequence[str],
    count_tokens: Callable[[str], int],
    turn_tokens: int,
) -> Turn:
    """Notes of a day, with what is planted among them."""
    lines: list[str] = []
    size = sum(map(count_tokens, planted))
    while size < turn_tokens:
        sentence, what = rng.choice(_SENTENCES), rng.choice(_WHAT)
        lines.append(sentence.format(who=rng.choice(_WHO), what=what, n=rng.randrange(10, 99)))
        # names and numbers weigh about the same: few questions to the server instead of many
        size += count_tokens(sentence.format(who=_WHO[0], what=what, n=10))
    step = max(1, len(lines) // (len(planted) + 1))
    for at, sentence in enumerate(planted, start=1):
        lines.insert(min(len(lines), at * step + at - 1), sentence)
    return Turn(text="Notes of today. " + " ".join(lines) + " Keep these in mind.")


def notes_around(
    sentences: Sequence[str],
    count_tokens: Callable[[str], int],
    *,
    turn_tokens: int,
    seed: int,
) -> str:
    """Notes of a day with these sentences among them."""
    rng = random.Random(seed)
    return _notes(rng, sentences, count_tokens, turn_tokens).text


def _questions(asked: Sequence[Planted]) -> list[Turn]:
    pairs = [asked[at : at + ASKED_AT_ONCE] for at in range(0, len(asked), ASKED_AT_ONCE)]
    return [Turn(text=" ".join(one.asked for one in pair), asks=tuple(pair)) for pair in pairs]
