"""Forgetting what a pattern matches where no message tells of it: system prompts, tools, states.

Stores look for exact texts, case aside, in the bytes they keep beside messages and facts. A text
that the pattern matches is handed to them only where nothing else holds it; where the pattern
means less than the text alone (`\\bAnn\\b` in "planning"), the records it matches are rewritten
one by one. Must never tell one of these texts. Always holds: a record that the pattern does not
match stays; one that still matches afterwards is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

from recollect.errors import FormatError
from recollect.formats.stored_records import join_state, with_texts, write_state
from recollect.memory.masking.masks import Masks, strings_in
from recollect.memory.masking.parts import masked_body
from recollect.memory.matching import bytes_meant, compiled
from recollect.ports import Store
from recollect.values.message import MessageId
from recollect.values.upkeep import (
    ROOMS,
    ForgetOrder,
    Forgotten,
    NewBody,
    RewriteOrder,
    Room,
    StoredBody,
)

_PAGE: Final = 50
_ROUNDS: Final = 3
"""What matches over two texts comes apart when one of them goes."""
_MOST_TEXTS: Final = 200
"""Each is a walk through all that is kept; whoever matches more asks for a session or a time."""
_MOST_CHARS: Final = 2_000
"""A longer text is told from others by what of it matches, or not at all."""

_LEFT: Final = (
    "{:,} records that the pattern matches in ledger, jobs and states, in their ids and keys "
    "perhaps: forget once more, or by session"
)


async def forget_in_rooms(store: Store, order: ForgetOrder) -> Forgotten:
    """Forget what the order's pattern matches in a store's rooms; nothing without a pattern."""
    counts: Counter[Room] = Counter()
    left = 0
    for _ in range(_ROUNDS if order.pattern is not None else 0):
        found = await _matched(store, order)
        if not found.records:
            left = 0
            break
        for text in _shortest(found.texts - found.elsewhere)[:_MOST_TEXTS]:
            done = await store.forget(ForgetOrder(at=order.at, matching=text))
            counts.update(
                {"pieces": done.pieces, "jobs": done.jobs, "states": done.session_states,
                 "compactions": done.compactions}
            )  # fmt: skip
        counts.update(await _rewritten(store, order))
        left = (await _matched(store, order)).records
    return Forgotten(
        pieces=counts["pieces"],
        jobs=counts["jobs"] + counts["job reasons"],
        session_states=counts["states"],
        compactions=counts["compactions"],
        cannot=(_LEFT.format(left),) if left else (),
    )


async def held_meant(store: Store, order: ForgetOrder) -> int:
    """How many records of the rooms hold the order's text, or what its pattern matches."""
    if order.matching is None and order.pattern is None:
        return 0
    return sum([bytes_meant(order, _readable(one)) async for one in _all(store)])


class _Matched:
    """What a pattern matches in a store's rooms; only while this forgets."""

    def __init__(self) -> None:
        self.records = 0
        self.texts: set[str] = set()
        """What it matches there, and the texts in which it does."""
        self.elsewhere: set[str] = set()
        """Those of them that stand, case aside, where it does not match."""


async def _matched(store: Store, order: ForgetOrder) -> _Matched:
    found = _Matched()
    async for one in _all(store):
        texts = set(_in_body(order, one))
        found.records += bool(texts)
        found.texts |= texts
    if not found.texts:
        return found
    folded = {text: text.casefold() for text in found.texts}
    async for one in _all(store):
        if any(True for _ in _in_body(order, one)):
            continue
        said = "\0".join(strings_in(_readable(one), keys=True)).casefold()
        found.elsewhere.update(text for text in folded if folded[text] in said)
    return found


async def _rewritten(store: Store, order: ForgetOrder) -> Counter[Room]:
    """Mask the pattern in the records that still match, and keep pieces out from now on."""
    masks = Masks(patterns=(compiled(order.pattern or ""),))
    counts: Counter[Room] = Counter()
    pieces: list[MessageId] = []
    found = [one async for one in _all(store) if any(True for _ in _in_body(order, one))]
    for one in found:
        try:
            body = masked_body(one.room, one.body, masks).value
        except FormatError:
            continue
        if body == one.body:
            continue
        new = NewBody(room=one.room, id=one.id, was=one.body, body=body)
        counts[one.room] += (await store.rewrite(RewriteOrder(at=order.at, bodies=(new,)))).bodies
        if one.room == "pieces":  # it comes again with each request, once this one has expired
            pieces.append(MessageId(one.id))
    if pieces:
        await store.forget(ForgetOrder(at=order.at, message_ids=tuple(pieces)))
    return counts


async def _all(store: Store) -> AsyncIterator[StoredBody]:
    for room in ROOMS:
        after: str | None = None
        while page := await store.held(room, after=after, limit=_PAGE):
            after = page[-1].id
            for one in page:
                yield one


def _in_body(order: ForgetOrder, one: StoredBody) -> Iterator[str]:
    """What the pattern matches in a record, and the texts in which it does."""
    search = compiled(order.pattern or "")
    for said in _said_in(one):
        matches = [match[0] for match in search.finditer(said) if match[0]]
        yield from matches
        if matches and len(said) <= _MOST_CHARS:
            yield said


def _said_in(one: StoredBody) -> list[str]:
    said: list[str] = []

    def look(text: str) -> str:
        said.append(text)
        return text

    if one.room == "states":
        try:
            with_texts(one.body, look)
        except FormatError:
            return list(strings_in(one.body, keys=True))
        return said
    return list(strings_in(one.body, keys=True))


def _readable(one: StoredBody) -> bytes:
    """A state as it reads; everything else as it is."""
    if one.room != "states":
        return one.body
    try:
        return write_state(join_state(one.body, (), ()))
    except FormatError:
        return one.body


def _shortest(texts: set[str]) -> list[str]:
    """The texts that none of the others is a part of: they go with it."""
    kept: dict[str, str] = {}
    for text in sorted(texts, key=lambda one: (len(one), one)):
        folded = text.casefold()
        if not any(short in folded for short in kept):
            kept[folded] = text
    return list(kept.values())
