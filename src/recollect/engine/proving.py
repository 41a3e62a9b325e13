"""Proves a summary: what was known is held against it, and against memory.

Memory is asked as a turn would ask it, but without the gate: whether it can be found when it is
asked for. Never raises: what cannot be asked counts as not found, and the receipt says so.
"""

from __future__ import annotations

import asyncio

from recollect.compaction.append_carried import strip_carried, without_bare_names
from recollect.compaction.probe import probe
from recollect.compaction.receipt import receipt
from recollect.engine.committing import Proved
from recollect.engine.turn_path import TurnPath
from recollect.ports import Recaller
from recollect.rules.message_redaction import TextMask
from recollect.values.compaction import CutPlan, Summarised
from recollect.values.edit import Cut
from recollect.values.recalled import RecallRequest


async def prove(
    path: TurnPath,
    plan: CutPlan,
    before: Cut | None,
    summary: Summarised,
    mask: TextMask,
    *,
    recaller: Recaller | None,
    space: str,
    session: str,
    pin_ratio: float,
    now: float,
) -> Proved:
    """The summary with what would have been lost, and its receipt; `before` is the cut that the
    plan goes on from."""
    kept = frozenset(entry.key for entry in plan.kept)
    limits = path.limits

    async def recall(query: str) -> str:
        if recaller is None:
            return ""
        found = await recaller.recall(
            RecallRequest(
                space=space,
                session=session,
                query=query,
                newest=query,
                shown=kept,
                scope="session",
                now=now,
                budget_tokens=path.estimated(limits.hard_cap_tokens),
                count_tokens=path.weigher.text,
                gated=False,
                most_hits=0,
            )
        )
        return "\n".join(passage.text for passage in found.passages)

    # What code carries is made anew, so only what the model wrote, and what was pinned, is probed.
    previous = "" if before is None else strip_carried(before.summary)
    probes = await asyncio.to_thread(probe, plan.summarised, previous_summary=previous)
    made = await receipt(
        probes,
        without_bare_names(summary.text),
        recall=recall,
        pin_tokens=path.estimated(int(limits.window_tokens * pin_ratio)),
        count_tokens=path.weigher.text,
    )
    text = f"{summary.text}\n\n{made.pinned}" if made.pinned else summary.text
    return Proved(text=mask.text(text), receipt=made.receipt)
