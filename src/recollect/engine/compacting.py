"""The path of a compaction: plan, durable, hooks, summary, receipt, commit (design.md 2).

Works on a turn as it was prepared and holds no lock while a model is asked; only committing
does, for as long as a write takes. Always holds: it ends as reduced, irreducible or failed; where
it is not reduced, the session's edits are what they were; what is cut is durable.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from recollect.compaction.append_carried import append_carried
from recollect.compaction.breaker import after, is_open
from recollect.compaction.carry import carry
from recollect.compaction.cut import cut
from recollect.compaction.list_names import list_names
from recollect.compaction.summarize import summarize
from recollect.config import Settings
from recollect.engine.boundary import Failure, attempted
from recollect.engine.committing import commit
from recollect.engine.hooks import Hooks, cancelled, preparation, supplied_summary
from recollect.engine.keeping import SessionKeeper
from recollect.engine.proving import prove
from recollect.engine.session import Session
from recollect.engine.turn_path import TurnPath
from recollect.ports import Clock, Model, Recaller
from recollect.values.compaction import (
    Carried,
    CompactionResult,
    CutPlan,
    NoCut,
    NoSummary,
    Spent,
    Summarised,
    Trigger,
)
from recollect.values.history import SessionState, newest_cut

KEEP_SHARES = (1.0, 0.5, 0.25, 0.0)
"""How much of what is usually kept is tried, one after the other, until the view would fit."""
HOOK_SHARE = 0.5
"""Of the time that a compaction has, what a hook may take that could supply the summary."""
GRACE_SECONDS = 15.0
"""Summarising ends by itself when its time is over, and says what it spent; this ends the rest."""
FITS_RATIO = 0.9
"""Of the limit, what a plan may come to: a view that is full again at once gains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOrder:
    """Who wants it, and what a person asked to be looked after."""

    trigger: Trigger
    instructions: str = field(default="", repr=False)


class Compactor:
    """Compacts the sessions of one engine."""

    def __init__(
        self,
        settings: Settings,
        *,
        space: str,
        model: Model | None,
        hooks: Hooks,
        keeper: SessionKeeper | None,
        recaller: Recaller | None,
        clock: Clock,
        critical_rules: Callable[[], str] = lambda: "",
        workspace: str | None = None,
    ) -> None:
        """`critical_rules` are the workspace's, read anew for every summary."""
        self._settings = settings
        self._space = space
        self._model = model
        self._hooks = hooks
        self._keeper = keeper
        self._recaller = recaller
        self._clock = clock
        self._critical_rules = critical_rules
        self._workspace = workspace

    def why_not(self, state: SessionState, *, asked_for: bool = False) -> str:
        """Why there can be no compaction now; empty where there can."""
        if self._model is None and not self._hooks.listens("session_before_compact"):
            return "no model is set that could summarise (models.provider, or `model=`)"
        if asked_for:
            return ""
        if not self._settings.compaction.enabled:
            return "compaction is off (compaction.enabled)"
        if state.compaction_paused:
            return "the last compaction was undone; there is none until you ask for one"
        if is_open(state.breaker, self._settings.compaction, now=self._clock.now()):
            return "compactions made no progress lately and are paused for a while"
        return ""

    async def compact(
        self, held: Session, path: TurnPath, order: CompactionOrder
    ) -> CompactionResult:
        """Compact a session as `path` shows it. Never raises for what goes wrong."""
        begun = time.monotonic()
        seconds = self._settings.compaction.deadline_seconds
        used = path.used_tokens()
        nothing = CompactionResult(
            convergence="failed",
            reason="",
            trigger=order.trigger,
            tokens_before=used,
            tokens_after=used,
        )

        async def made() -> CompactionResult:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                return await self._compacted(held, path, order, nothing, begun=begun)

        if why_not := self.why_not(held.state, asked_for=order.trigger == "manual"):
            return replace(nothing, reason=why_not)
        if path.request.continues:
            why = "the provider holds the earlier messages itself: only it can shorten them"
            return replace(nothing, convergence="irreducible", reason=why)
        done = await attempted(made())
        if isinstance(done, Failure):
            late = issubclass(done.error, TimeoutError)
            why = "it did not end in time (compaction.deadline_seconds)"
            done = replace(nothing, reason=why if late else done.said)
        done = replace(done, seconds=time.monotonic() - begun)
        async with held.lock:
            breaker = after(
                held.state.breaker,
                done,
                self._settings.compaction,
                now=self._clock.now(),
                turn=held.state.turn,
                window_tokens=path.limits.window_tokens,
            )
            held.state = replace(held.state, breaker=breaker)
        event = {
            "messageCount": len(path.entries) - done.compacted_messages,
            "tokenCount": done.tokens_after,
            "compactedCount": done.compacted_messages,
        }
        if done.compacted:
            heard = await self._hooks.fire("after_compaction", event, self.context(held))
            done = replace(done, notes=(*done.notes, *heard.notes))
        return done

    async def _compacted(
        self,
        held: Session,
        path: TurnPath,
        order: CompactionOrder,
        nothing: CompactionResult,
        *,
        begun: float,
    ) -> CompactionResult:
        plan = self._plan(path)
        if isinstance(plan, NoCut):
            return replace(nothing, convergence="irreducible", reason=plan.reason)
        if said := await self._not_durable(held, path, plan):
            return replace(nothing, reason=said)
        event = {"messageCount": len(path.entries), "tokenCount": path.used_tokens()}
        heard = await self._hooks.fire("before_compaction", event, self.context(held))
        summary = await self._summarised(held, path, plan, order, begun=begun)
        if isinstance(summary, NoSummary):
            notes = (*heard.notes, *summary.notes)
            return replace(nothing, spent=summary.spent, notes=notes, reason=summary.reason)
        names = list_names(
            summary.carried.identifiers,
            summary.text,
            window_tokens=path.estimated(path.limits.window_tokens),
            count_tokens=path.weigher.text,
        )
        if names.text:
            summary = replace(summary, text=f"{summary.text}\n\n{names.text}")
        proved = await prove(
            path,
            plan,
            summary,
            recaller=self._recaller,
            space=self._space,
            session=held.id,
            pin_ratio=self._settings.compaction.pin_ratio,
            now=self._clock.now(),
        )
        nothing = replace(nothing, spent=summary.spent, notes=(*heard.notes, *summary.notes))
        return await commit(
            held,
            path,
            plan,
            summary,
            proved,
            nothing=nothing,
            keeper=self._keeper,
            redaction=self._settings.redaction,
            now=self._clock.now(),
            begun=begun,
        )

    def _plan(self, path: TurnPath) -> CutPlan | NoCut:
        """The first plan whose view would fit; else the one that keeps least."""
        limits = path.limits
        allowed = FITS_RATIO * min(limits.compact_tokens, limits.limit_tokens)
        best: CutPlan | NoCut = NoCut(reason="there is nothing before the newest exchange")
        for share in KEEP_SHARES:
            plan = cut(
                path.entries,
                path.edits,
                path.codec.rules,
                keep_tokens=path.estimated(int(limits.keep_recent_tokens * share)),
                weigher=path.weigher,
            )
            if isinstance(plan, NoCut):
                best = plan if isinstance(best, NoCut) else best
                continue
            best = plan
            kept = path.calibrated(path.fixed_tokens + plan.kept_tokens)
            if kept + self._summary_tokens(path) <= allowed:
                break
        return best

    def _summary_tokens(self, path: TurnPath) -> int:
        return min(self._settings.compaction.summary_tokens, path.limits.window_tokens // 10)

    async def _not_durable(self, held: Session, path: TurnPath, plan: CutPlan) -> str:
        """Why the past may not be cut yet; empty where all of it is durable."""
        if self._keeper is None:
            return ""
        await self._keeper.make_durable(held.id, path.entries, held.keeping, now=self._clock.now())
        missing = self._keeper.not_durable(plan.summarised, held.keeping)
        return f"{len(missing)} messages are not durable yet, so none may leave" if missing else ""

    async def _summarised(
        self, held: Session, path: TurnPath, plan: CutPlan, order: CompactionOrder, *, begun: float
    ) -> Summarised | NoSummary:
        """By a hook that supplies one, else by the model."""
        before = newest_cut(path.edits)
        previous = "" if before is None else before.summary
        earlier = None if before is None else before.carried
        supplied, notes = await self._supplied(held, path, plan, order, previous, earlier)
        if isinstance(supplied, NoSummary):
            return supplied
        rules_text = await asyncio.to_thread(self._critical_rules)
        if isinstance(supplied, str):
            carried = carry(plan.summarised, earlier)
            text = append_carried(
                supplied,
                carried,
                rules_text,
                most_tokens=path.estimated(self._summary_tokens(path)),
                count_tokens=path.weigher.text,
            )
            return Summarised(text=text, carried=carried, spent=Spent(), notes=notes)
        if self._model is None:
            return NoSummary(
                reason="no hook supplied a summary, and no model is set", spent=Spent()
            )
        settings = self._settings.compaction
        left = max(1.0, settings.deadline_seconds - (time.monotonic() - begun))
        done = await summarize(
            plan,
            ask=self._model.ask,
            window_tokens=self._model.window_tokens or path.limits.window_tokens,
            settings=replace(settings, deadline_seconds=min(settings.deadline_seconds, left)),
            previous_summary=previous,
            previous_carried=earlier,
            rules=path.codec.rules,
            count_tokens=path.weigher.text,
            most_summary_tokens=path.estimated(self._summary_tokens(path)),
            instructions=order.instructions,
            rules_text=rules_text,
        )
        return replace(done, notes=(*notes, *done.notes))

    async def _supplied(
        self,
        held: Session,
        path: TurnPath,
        plan: CutPlan,
        order: CompactionOrder,
        previous: str,
        earlier: Carried | None,
    ) -> tuple[str | NoSummary | None, tuple[str, ...]]:
        """The summary that a hook supplies, if any does, or that one said no; and notes."""
        if not self._hooks.listens("session_before_compact"):
            return None, ()
        told = preparation(
            plan,
            carry(plan.summarised, earlier),
            tokens_before=path.used_tokens(),
            previous_summary=previous,
            reserve_tokens=path.limits.reserve_tokens,
        )
        heard = await self._hooks.fire(
            "session_before_compact",
            {"preparation": told, "customInstructions": order.instructions or None},
            self.context(held),
            seconds=self._settings.compaction.deadline_seconds * HOOK_SHARE,
        )
        if cancelled(heard.answers):
            why = "a session_before_compact hook said no"
            return NoSummary(reason=why, spent=Spent()), heard.notes
        return supplied_summary(heard.answers), heard.notes

    def context(self, held: Session) -> dict[str, str | None]:
        """Whose compaction it is, as hooks are told."""
        return {
            "agentId": self._space,
            "sessionKey": held.id,
            "workspaceDir": self._workspace,
            "messageProvider": None,
        }
