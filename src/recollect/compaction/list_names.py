"""Lists exact names behind a summary: those that stand nowhere in it, as many as there is room for.

A name in the view is what lets a model ask for more, and what it costs is little: measured on real
transcripts, 400 names bring back half of the references that plain compaction loses
(docs/figures_cost.md). Made anew by each compaction, never read by the model that summarises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from recollect.compaction.render import defuse
from recollect.formats.summaries import NAMES_TAG

NAMES_SHARE: Final = 0.04
"""Of the window, what the list may take."""
NAMES_TOKENS: Final = 3000
"""At the most: what comes behind the first few hundred is hardly ever named again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesResult:
    """The list, empty where there is none, and how many it names."""

    text: str = field(repr=False)
    names: int
    reason: str


def list_names(
    names: Sequence[str],
    summary: str,
    *,
    window_tokens: int,
    count_tokens: Callable[[str], int],
) -> NamesResult:
    """The names that `summary` does not hold, most important first, within the list's share."""
    most = min(NAMES_TOKENS, int(window_tokens * NAMES_SHARE))
    known = summary.casefold()
    missing = [name for name in names if name.casefold() not in known]
    chosen: list[str] = []
    tokens = count_tokens(f"<{NAMES_TAG}>\n\n</{NAMES_TAG}>")
    for name in missing:
        spelled = defuse(" ".join(name.split()))
        cost = count_tokens(f"{spelled}, ")
        if tokens + cost > most:
            break
        chosen.append(spelled)
        tokens += cost
    if not chosen:
        return NamesResult(text="", names=0, reason="the summary holds all names, or has no room")
    listed = ", ".join(chosen)
    return NamesResult(
        text=f"<{NAMES_TAG}>\n{listed}\n</{NAMES_TAG}>",
        names=len(chosen),
        reason=f"{len(chosen)} of {len(missing)} names that the summary does not hold",
    )
