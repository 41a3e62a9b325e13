"""Entries that name their parent: the order in which histories can be built from them.

Pure positions, no formats. Always holds: every entry comes up once, after its parent; a ring
of parents, which only a damaged file has, is cut where the walk would bite its own tail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def parents_first(parents: Sequence[int | None]) -> Iterator[tuple[int, int | None]]:
    """Every position with its parent, in file order save that parents go before children."""
    done = bytearray(len(parents))
    for position in range(len(parents)):
        branch: list[int] = []
        walking: set[int] = set()
        at: int | None = position
        while at is not None and not done[at] and at not in walking:
            branch.append(at)
            walking.add(at)
            at = parents[at]
        for entry in reversed(branch):
            parent = parents[entry]
            done[entry] = 1
            yield entry, parent if parent is not None and done[parent] else None


def ancestors(position: int | None, parents: Sequence[int | None]) -> Iterator[int]:
    """The position itself, its parent, and so on up to the root."""
    seen: set[int] = set()
    while position is not None and position not in seen:
        seen.add(position)
        yield position
        position = parents[position]
