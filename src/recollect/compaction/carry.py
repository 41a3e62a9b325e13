"""Takes over a cut what no model has to be trusted with: files, failures, names, telling lines.

Owns what is carried and how much of it. Must never look at what a summary says: it works from the
messages and from what the compaction before carried. What always holds: bounded lists; the same
entries give the same result; a file that was modified is not listed as read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from recollect.compaction.failures import failures
from recollect.compaction.telling_lines import gather_lines, rank_names
from recollect.compaction.touched import touched
from recollect.values.compaction import Carried
from recollect.values.history import Entry

MOST_FILES: Final = 200
"""Newest kept; a summary shows at most 900 characters of each list anyway."""


def carry(
    entries: Sequence[Entry], previous: Carried | None = None, *, kept: Sequence[Entry] = ()
) -> Carried:
    """What code carries over the cut behind `entries`, and over the cut before them; `kept` are
    the messages that stay."""
    before = previous or Carried()
    read, modified = touched(entries)
    all_modified = _newest((*before.modified_files, *modified))
    all_read = _newest((*before.read_files, *read), leaving_out=set(all_modified))
    names = rank_names(entries, before.identifiers)
    return Carried(
        read_files=tuple(sorted(all_read)),
        modified_files=tuple(sorted(all_modified)),
        failures=failures(entries, before.failures),
        identifiers=names,
        lines=gather_lines(entries, names, before.lines, kept=kept),
    )


def _newest(paths: Iterable[str], leaving_out: Iterable[str] = ()) -> list[str]:
    known: dict[str, None] = {}
    skipped = set(leaving_out)
    for path in paths:
        known.pop(path, None)
        if path not in skipped:
            known[path] = None
    return list(known)[-MOST_FILES:]
