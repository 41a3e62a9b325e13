"""Forgetting what a pattern matches where no message tells of it: system prompts, tools, states.

Stores look for exact texts in the bytes they keep beside messages and facts; here a pattern
becomes the texts that it matches there. Must never tell one of them. Always holds: what no longer
matches afterwards is gone by the store's own removing; what still does is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from recollect.errors import FormatError
from recollect.formats.session_state import with_texts
from recollect.memory.matching import compiled, matches_in
from recollect.ports import Store
from recollect.values.upkeep import ROOMS, ForgetOrder, Forgotten, HeldBody

_PAGE: Final = 50
_ROUNDS: Final = 3
"""What matches over two texts comes apart when one of them goes."""
_MOST_TEXTS: Final = 200
"""Each is a walk through all that is kept; whoever matches more asks for a session or a time."""

_LEFT: Final = (
    "{:,} more texts that the pattern matches in ledger, jobs and states: forget once more, or by "
    "session"
)


async def forget_in_rooms(store: Store, order: ForgetOrder) -> Forgotten:
    """Forget what the order's pattern matches in a store's rooms; nothing without a pattern."""
    counts: Counter[str] = Counter()
    left: set[str] = set()
    for _ in range(_ROUNDS if order.pattern is not None else 0):
        left = await _matched(store, order)
        for text in _shortest(left)[:_MOST_TEXTS]:
            done = await store.forget(ForgetOrder(at=order.at, matching=text))
            counts.update(
                pieces=done.pieces, jobs=done.jobs, states=done.session_states,
                compactions=done.compactions,
            )  # fmt: skip
        if not left:
            break
    if left:
        left = await _matched(store, order)
    return Forgotten(
        pieces=counts["pieces"],
        jobs=counts["jobs"],
        session_states=counts["states"],
        compactions=counts["compactions"],
        cannot=(_LEFT.format(len(left)),) if left else (),
    )


async def _matched(store: Store, order: ForgetOrder) -> set[str]:
    found: set[str] = set()
    for room in ROOMS:
        after: str | None = None
        while page := await store.held(room, after=after, limit=_PAGE):
            after = page[-1].id
            for one in page:
                found.update(text for text in _in_body(order, one) if text)
    return found


def _in_body(order: ForgetOrder, one: HeldBody) -> Iterator[str]:
    if one.room != "states":
        yield from matches_in(order, one.body)
        return
    said: list[str] = []

    def look(text: str) -> str:
        said.append(text)
        return text

    try:
        with_texts(one.body, look)
    except FormatError:
        yield from matches_in(order, one.body)
        return
    search = compiled(order.pattern or "")
    for text in said:
        yield from (match[0] for match in search.finditer(text))


def _shortest(texts: set[str]) -> list[str]:
    """The texts that none of the others is a part of: they go with it."""
    kept: dict[str, str] = {}
    for text in sorted(texts, key=lambda one: (len(one), one)):
        folded = text.casefold()
        if not any(short in folded for short in kept):
            kept[folded] = text
    return list(kept.values())
