"""The path of every turn: align, apply, and at batch moments prune and trim; recall, inject.

Every step takes the turn as it stands and replaces values in it; the boundary sees to it that
a step that fails changes nothing. The order is design.md 2's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final, TypeAlias

from recollect.boundary import Boundary
from recollect.config import Settings
from recollect.engine.gate import Gate
from recollect.engine.telling import (
    alignment_reason,
    durability_reason,
    recall_reasons,
    view_reasons,
)
from recollect.formats.codec import Codec
from recollect.ports import Recaller, StandingRecaller
from recollect.rules.budget import WindowLimits, batch_moment
from recollect.rules.identity import ROOT, block_mark, continued_root
from recollect.rules.message_redaction import TextMask
from recollect.rules.tokens import MESSAGE_TOKENS, Weigher
from recollect.search.identifiers import identifiers_in
from recollect.turn.align import Alignment, ReadResult, Remembered, align, enter, read
from recollect.turn.apply import Applied, apply, extend
from recollect.turn.inject import InjectResult, block_text, inject
from recollect.turn.query import QueryResult, ask, newest_exchange, query, spoken_text
from recollect.turn.standing_block import StandResult, stand, standing_tokens
from recollect.values.edit import Edit, Insert, LeaveOut
from recollect.values.history import Composed, Entry, SessionState, Slot, View, behind_cut
from recollect.values.message import EntryKey, MessageId, Text
from recollect.values.model import Request
from recollect.values.reason import NOT_RUN, Cause, Reason
from recollect.values.recall import Asks, Recalled, RecalledFact
from recollect.values.report import BatchMoment, WindowSource

DORMANT_TURNS = 50
"""How long edits of a branch not taken wait for the client to come back to it."""
CHARS_A_TOKEN = 4
"""A rough size for what could not be read."""


Free: TypeAlias = Callable[["TurnPath", BatchMoment, QueryResult], Awaitable[None]]


@dataclass(slots=True)
class TurnPath:
    """One turn as it goes along."""

    settings: Settings
    state: SessionState
    request: Request
    codec: Codec
    limits: WindowLimits
    window_source: WindowSource
    weigher: Weigher
    boundary: Boundary
    remembered: Remembered
    secret: bytes
    now: float
    number: int
    """The version of the session that this turn makes."""
    turn: int
    """Which request of the session it is, from 1."""
    mask: TextMask
    """Of the session: makes of a text what may be stored."""
    readable: bool = True
    fixed_tokens: int = 0
    entries: tuple[Entry, ...] = ()
    done: ReadResult | None = None
    alignment: Alignment | None = None
    edits: tuple[Edit, ...] = ()
    dormant: tuple[tuple[Edit, int], ...] = ()
    view: View = field(default_factory=lambda: View(rows=(), tokens=0))
    incoming_tokens: int = 0
    moment: BatchMoment | None = None
    asked: str = ""
    shaped: bool = False
    """A view was made; otherwise the request goes out as it came and the session stays."""
    forgotten: AbstractSet[MessageId] = frozenset()
    """Messages that were forgotten and a client still sends: nothing quotes them."""
    held: frozenset[EntryKey] = frozenset()
    """Messages that may not leave the view: they are not durable yet."""
    composed: dict[Slot, Composed] = field(default_factory=dict)
    recalled: Recalled | None = None
    """What memory found for this turn, whether or not it was put back."""
    _block_tokens: int = 0
    """What its block may take, as an estimate, where there is room."""
    _asks: bool = False
    """Whether the turn asks for something: then room is made for the block."""
    may_compact: bool = False
    """A compaction can happen before this request goes out."""
    why_not_compact: Reason | None = None
    """Why it cannot, for the report of a turn that has to trim instead."""
    wants_compaction: bool = False
    """It should: the turn waits for it and begins anew."""

    async def run(
        self,
        recaller: Recaller | None,
        space: str,
        session: str,
        gate: Gate | None,
        free: Free,
    ) -> bool:
        """Walk the path; False when the request could not even be read.

        `free` is what a batch moment does to the view.
        """
        if not self.readable or not await self.stand():
            return False
        if not self.view.rows:
            self.boundary.note("check", "skipped", Reason(Cause.SAYS_NOTHING))
            return False
        asked = await self.boundary.run(
            "query",
            lambda: query(
                self.entries,
                self.settings.query,
                with_noise=self.settings.recall.method == "openclaw",
            ),
            unchanged=QueryResult(text="", sources=(), reason=NOT_RUN),
            reason=lambda result: result.reason,
        )
        self.asked = asked.text
        self.moment = batch_moment(
            self.settings,
            self.limits,
            used_tokens=self.used_tokens(),
            now=self.now,
            sent_at=self.state.sent_at,
        )
        if self.moment is None and self.fills_up():
            due = Reason(Cause.COMPACTION_DUE, limit=self.limits.compact_tokens)
            self.moment = BatchMoment(kind="compaction", reason=due)
        if self.moment is not None and await self._may_leave(gate):
            await free(self, self.moment, asked)
        if self.wants_compaction:
            return True
        if self.moment is not None or not self.state.requests or self._lacks_standing():
            await self._stand(recaller, session)
        await self._recall(recaller, asked, space, session)
        if self.recalled is not None and not self.recalled.empty:
            trimmed, quoted = self._trims(), self._quoted()
            await self._make_room(asked, gate, free)
            if self.wants_compaction:
                return True
            if not quoted <= self._quoted():  # what blocks quoted that went may be what is asked
                await self._recall_again(recaller, asked, space, session)
            if self._trims() != trimmed:
                await self._stand(recaller, session)
            await self._inject(self.recalled)
        self.shaped = True
        self._check()
        return True

    async def stand(self) -> bool:
        """The history as it stands, without deciding anything new; False when it cannot be read."""
        return await self._read_and_align() and await self._apply_standing()

    def under(self, edits: tuple[Edit, ...]) -> None:
        """Look at this turn's history under other edits, as a later turn left them."""
        self.edits, self.view = edits, self.applied(edits).view

    def fills_up(self) -> bool:
        """Whether a compaction is due, and can happen now."""
        return self.may_compact and self.used_tokens() > self.limits.compact_tokens

    async def _may_leave(self, gate: Gate | None) -> bool:
        """Whether any message may leave the view: only what is in the archive or the spool."""
        if gate is None:
            return True
        kept = await self.boundary.wait(
            "ingest",
            lambda: gate.make_durable(self.entries),
            unchanged=None,
            reason=durability_reason,
            seconds=self.settings.turn.deadline_seconds,
        )
        self.held = gate.not_durable(self.entries)
        if not self.held:
            return True
        gives_up = gate.gives_up()
        cause = Cause.GIVEN_UP if gives_up else Cause.NOT_DURABLE
        reasons = [Reason(cause, messages=len(self.held))]
        if kept is not None and kept.said:
            reasons.append(Reason(Cause.NOT_KEPT, error=kept.said))
        self.boundary.note("ingest", "failed", *reasons)
        if gives_up:
            self.held = frozenset()
        if len(self.held) == len(self.entries):
            self.moment = None
            return False
        return True

    def pass_by(self, size_chars: int) -> None:
        """The request goes out as it came: forget what was done, and say how large it is."""
        self.shaped = False
        self.entries, self.view = (), View(rows=(), tokens=size_chars // CHARS_A_TOKEN)
        self.edits, self.moment = self.state.edits, None
        self.incoming_tokens = self.fixed_tokens + self.view.tokens
        self._check()

    def used_tokens(self) -> int:
        """The request as it stands, by the calibrated count."""
        return self.calibrated(self.fixed_tokens + self.view.tokens)

    def calibrated(self, estimate_tokens: int) -> int:
        """An estimate, corrected by what providers reported for this session."""
        if not self.settings.tokens.calibrate:
            return estimate_tokens
        return self.state.calibration.apply(estimate_tokens)

    def estimated(self, tokens: int) -> int:
        """The other way round for a difference: calibrated tokens as an estimate."""
        if not self.settings.tokens.calibrate:
            return tokens
        return ceil(tokens / self.state.calibration.ratio)

    async def _read_and_align(self) -> bool:
        done = await self.boundary.run(
            "read",
            lambda: read(
                self.request.messages,
                self.codec,
                self.secret,
                self.weigher,
                self.remembered,
                self.state.blocks,
            ),
            unchanged=None,
            reason=lambda result: result.reason,
        )
        if done is None:
            return False
        alignment = await self.boundary.run(
            "align", lambda: self._aligned(done), unchanged=None, reason=alignment_reason
        )
        if alignment is None:
            return False
        settled = len(done.settled)
        fresh = zip(done.fresh, alignment.keys[settled:], strict=True)
        self.done, self.alignment = done, alignment
        self.entries = done.settled + tuple([enter(reading, key) for reading, key in fresh])
        self.incoming_tokens = self.fixed_tokens + sum([entry.tokens for entry in self.entries])
        return True

    def _aligned(self, done: ReadResult) -> Alignment:
        settled = len(done.settled)
        ids = self.state.ids[:settled] + tuple([reading.id for reading in done.fresh])
        weights = [reading.tokens for reading in done.fresh]
        root = continued_root(self.request.continues_from) if self.request.continues else ROOT
        return align(self.state, ids, weights, settled=settled, root=root)

    async def _apply_standing(self) -> bool:
        """The standing edits: dormant ones that fit again wake, blocks that must not stay go."""
        assert self.alignment is not None
        edits = self.state.edits
        if self.state.dormant:
            keys = set(self.alignment.keys)
            edits += tuple(edit for edit, _ in self.state.dormant if edit.anchor in keys)
        if not self.settings.recall.sticky:
            edits = without_blocks(edits)
        if not self.settings.recall.standing_tokens:
            edits = tuple(edit for edit in edits if edit.stage != "stand")
        elif self._changed_course():  # what another branch said does not stand in this one
            elsewhere = set(self.state.ids) - {entry.id for entry in self.entries}
            edits = tuple(
                edit
                for edit in edits
                if not isinstance(edit, Insert)
                or edit.stage != "stand"
                or elsewhere.isdisjoint(edit.quotes)
            )
        lifted: tuple[Edit, ...] = ()
        if self._went_back(edits):
            lifted = tuple(edit for edit in edits if edit.stage == "trim")
            edits = tuple(edit for edit in edits if edit.stage != "trim")
            self.boundary.note("align", "done", Reason(Cause.TRIMS_LIFTED))
        applied = await self.boundary.run(
            "pair", lambda: self._extended(edits), unchanged=None, reason=view_reasons
        )
        if applied is None:
            return False
        self.edits = edits
        if applied.gone or lifted or self.state.dormant:
            gone = set(applied.gone)
            self.edits = tuple([edit for edit in edits if edit not in gone])
            rest = [edit for edit in (*applied.gone, *lifted) if edit.stage != "stand"]
            resting = [*self.state.dormant, *((edit, self.number) for edit in rest)]
            self.dormant = _still_waiting(resting, set(self.edits), self.number)
        self.view = applied.view
        return True

    def _went_back(self, edits: tuple[Edit, ...]) -> bool:
        """Whether the client went back to where messages were trimmed since, as chats do when
        an earlier question is asked anew: what is recent now, or has room, is not left out.

        The trims rest meanwhile: they are wanted again when the client comes back.
        """
        if self.calibrated(self.incoming_tokens) <= self.limits.low_water_tokens:
            return any(edit.stage == "trim" for edit in edits)
        if not self._changed_course():
            return False
        spoken = [
            entry.key
            for entry in self.entries
            if entry.role == "assistant" or (entry.role == "user" and spoken_text(entry))
        ]
        recent = set(spoken[-self.settings.trim.protect_messages :])
        return any(edit.stage == "trim" and edit.anchor in recent for edit in edits)

    def _lacks_standing(self) -> bool:
        """Whether messages are left out and nothing stands for them: after the client went
        another way, or a compaction was undone."""
        return bool(self._trims()) and not any(edit.stage == "stand" for edit in self.edits)

    def _changed_course(self) -> bool:
        """Whether this history is not the last one and more."""
        assert self.alignment is not None
        branched = self.alignment.course in ("branched", "rejoined")
        return branched or len(self.entries) < len(self.state.path)

    def _extended(self, edits: tuple[Edit, ...]) -> Applied:
        """From the last view where it only grew, else from the start."""
        extended = None
        if not self.request.continues:
            extended = extend(
                self.remembered.last_view,
                self.entries,
                edits,
                self.codec,
                self.weigher.message,
                thinking=self.request.thinking,
                composed=self.composed,
            )
        return extended or self.applied(edits)

    def applied(self, edits: Sequence[Edit]) -> Applied:
        """The view of this turn's history under these edits."""
        return apply(
            self.entries,
            edits,
            self.codec,
            self.weigher.message,
            continues=self.request.continues,
            thinking=self.request.thinking,
            composed=self.composed,
        )

    async def change(self, edits: tuple[Edit, ...]) -> None:
        """Commit edits to the turn: the view under them, or neither."""
        applied = await self.boundary.run(
            "pair", lambda: self.applied(edits), unchanged=None, reason=view_reasons
        )
        if applied is not None:
            self.edits, self.view = edits, applied.view

    async def _recall(
        self, recaller: Recaller | None, asked: QueryResult, space: str, session: str
    ) -> None:
        if not self.settings.recall.enabled:
            self.boundary.note("recall", "skipped", Reason(Cause.RECALL_OFF))
        elif recaller is None:
            self.boundary.note("recall", "nothing", Reason(Cause.NO_RECALLER))
        elif len(asked.text) < self.settings.trim.min_query_chars:
            self.boundary.note("recall", "nothing", Reason(Cause.QUERY_TOO_SHORT))
        elif self._has_its_block():
            self.boundary.note("recall", "nothing", Reason(Cause.HAS_BLOCK))
        elif self._was_asked():
            self.boundary.note("recall", "nothing", Reason(Cause.ASKED_BEFORE))
        else:
            request = ask(
                self.visible(),
                asked,
                self.settings.recall,
                edits=self.edits,
                space=space,
                session=session,
                now=self.now,
                budget_tokens=self._wanted_tokens,
                count_tokens=self.weigher.text,
            )
            found = await self.boundary.wait(
                "recall",
                lambda: recaller.recall(request),
                unchanged=Recalled(),
                reason=recall_reasons,
                seconds=self.settings.recall.deadline_seconds,
            )
            self.recalled = found
            self._block_tokens = request.budget_tokens
            self._asks = request.asks != "other"

    async def _recall_again(
        self, recaller: Recaller | None, asked: QueryResult, space: str, session: str
    ) -> None:
        first = self.recalled
        await self._recall(recaller, asked, space, session)
        if self.recalled is None or self.recalled.empty:
            self.recalled = first

    def _quoted(self) -> set[str]:
        """The passages that recalled blocks of the view quote."""
        return {name for block in self._blocks() for name in block.recalled}

    def _blocks(self) -> list[Insert]:
        return [edit for edit in self.edits if isinstance(edit, Insert) and is_block(edit)]

    def _trims(self) -> int:
        return sum(edit.stage == "trim" for edit in self.edits)

    def _was_asked(self) -> bool:
        """In the middle of a turn only what the model names itself can be new."""
        last, recall = self.entries[-1], self.settings.recall
        if recall.every_turn or not recall.sticky:  # then a block has to be found every time
            return False
        if self.moment is not None or (last.role == "user" and spoken_text(last)):
            return False
        said = next((one for one in reversed(self.entries) if one.role == "assistant"), None)
        return said is None or not any(
            identifiers_in(part.text) for part in said.parts if isinstance(part, Text)
        )

    def _has_its_block(self) -> bool:
        """Whether a block stands that was recalled since the newest user message."""
        recent = newest_exchange(self.entries)
        return any(is_block(edit) and edit.anchor in recent for edit in self.edits)

    def _wanted_tokens(self, asks: Asks, *, uses_tools: bool) -> int:
        """What a block may take for a message that asks so much, as an estimate."""
        limits = self.limits
        if self.settings.recall.method == "openclaw":  # its cap is the text's, not the message's
            return self._as_estimate(limits.block_tokens)
        asked = limits.hard_cap_tokens if uses_tools else limits.talk_cap_tokens
        wants = asks in ("past", "question") or (asks == "reference" and uses_tools)
        return self._as_estimate((asked if wants else limits.block_tokens) - MESSAGE_TOKENS)

    def _block_budget(self) -> int:
        """What the block may take, as an estimate: what was wanted for it, and the view leaves."""
        room = self._room_tokens()
        if self.settings.recall.method != "openclaw":
            room = min(room, self.limits.blocks_tokens - self.calibrated(self._standing_blocks()))
        return min(self._block_tokens, self._as_estimate(max(0, room - MESSAGE_TOKENS)))

    def _as_estimate(self, tokens: int) -> int:
        """Calibrated tokens as an estimate that is surely within them."""
        if not self.settings.tokens.calibrate:
            return max(0, tokens)
        # Rounded down, and one less: counting the whole request anew rounds up.
        return max(0, int((tokens - 1) / self.state.calibration.ratio))

    def _room_tokens(self) -> int:
        return self.limits.available_tokens - self.used_tokens()

    async def _make_room(self, asked: QueryResult, gate: Gate | None, free: Free) -> None:
        """A block that is wanted and does not fit, or makes the blocks of the view too many, is
        a batch moment: older blocks go, and what else a full view can do without."""
        if self.settings.recall.method == "openclaw" or self.moment is not None:
            return
        if not self._asks or self.has_room():
            return
        room = max(0, self._room_tokens())
        reason = Reason(Cause.ROOM_WANTED, tokens=self.wanted_tokens(), room=room)
        self.moment = BatchMoment(kind="room", reason=reason)
        if await self._may_leave(gate):
            await free(self, self.moment, asked)

    def has_room(self) -> bool:
        """Whether what was recalled fits the view as it stands."""
        wanted = self.wanted_tokens()
        return wanted <= self._room_tokens() and not self._blocks_are_full(wanted)

    def wanted_tokens(self) -> int:
        """What a block with all that was recalled takes."""
        if self.recalled is None or self.recalled.empty:
            return 0
        tokens = min(self.weigher.text(block_text(self.recalled)), self._block_tokens)
        return self.calibrated(tokens + MESSAGE_TOKENS)

    def _blocks_are_full(self, wanted: int) -> bool:
        """Whether the blocks of the view, with this one, take more than their share of it."""
        standing = self._standing_blocks()
        return bool(standing) and self.calibrated(standing) + wanted > self.limits.blocks_tokens

    def _standing_blocks(self) -> int:
        """What the recalled blocks of the view take, as an estimate."""
        return sum([self.weigher.text(block.text) for block in self._blocks()])

    async def _inject(self, found: Recalled) -> None:
        made = await self.boundary.run(
            "inject",
            lambda: inject(
                self.entries,
                found,
                self.weigher,
                placement=self.settings.recall.placement,
                budget_tokens=self._block_budget(),
                turn=self.number,
                method=self.settings.recall.method,
            ),
            unchanged=InjectResult(edit=None, fill="none", tokens=0, reason=NOT_RUN),
            reason=lambda result: result.reason,
        )
        if made.edit is not None:
            kept = self.edits
            if made.edit.placement == "head":  # one block at the head, and it is the newest
                kept = without_blocks(kept)
            await self.change((*kept, made.edit))

    async def _stand(self, recaller: Recaller | None, session: str) -> None:
        """Make the standing block anew, of what is left out of the view as it is now."""
        tokens = standing_tokens(self.settings.recall, self.limits.window_tokens)
        if not tokens or not self.settings.recall.enabled:
            return
        rest = tuple(e for e in self.edits if not (isinstance(e, Insert) and e.stage == "stand"))
        if len(rest) < len(self.edits):
            await self.change(rest)
        tokens = min(tokens, self.limits.limit_tokens - self.used_tokens() - MESSAGE_TOKENS)
        if tokens <= 0:
            return
        shown = {entry.key for entry in self.visible()}
        told = shown | behind_cut(self.entries, self.edits)
        left = [e for e in self.entries if e.key not in told and e.id not in self.forgotten]
        facts: tuple[RecalledFact, ...] = ()
        if isinstance(recaller, StandingRecaller):
            seen = {entry.id for entry in self.entries if entry.key in shown}
            found = await self.boundary.wait(
                "stand",
                lambda: recaller.standing(session),
                unchanged=(),
                reason=lambda facts: Reason(Cause.STANDING_FOUND, facts=len(facts)),
                seconds=self.settings.recall.deadline_seconds,
            )
            facts = tuple(fact for fact in found if seen.isdisjoint(fact.message_ids))
        made = await self.boundary.run(
            "stand",
            lambda: stand(
                left,
                facts,
                self.weigher,
                anchor=self.entries[0].key,
                budget_tokens=self._as_estimate(tokens),
                turn=self.number,
                among_tools=any(entry.calls or entry.results for entry in self.entries),
                mask=self.mask.text,
                known=self.remembered.statements,
            ),
            unchanged=StandResult(edit=None, reason=NOT_RUN),
            reason=lambda result: result.reason,
            in_thread=self.settings.redaction.enabled,
        )
        if made.edit is not None:
            await self.change((*rest, made.edit))

    def visible(self) -> tuple[Entry, ...]:
        """The entries that the view shows, whole or in part, in the history's order."""
        shown: set[EntryKey] = set()
        for row in self.view.rows:
            if isinstance(row, Entry):
                shown.add(row.key)
            else:
                shown.update(row.sources)
        return tuple([entry for entry in self.entries if entry.key in shown])

    def not_left_out(self) -> tuple[Entry, ...]:
        """The entries that no edit leaves out, whether or not a repair hides them.

        What lies behind a cut is shown by its summary: leaving it out would change nothing.
        """
        out = {e.anchor for e in self.edits if isinstance(e, LeaveOut) and e.part is None}
        out |= behind_cut(self.entries, self.edits)
        return tuple([entry for entry in self.entries if entry.key not in out])

    def hidden(self) -> set[EntryKey]:
        """Entries that only a repair keeps out of the view."""
        shown = {entry.key for entry in self.visible()}
        return {entry.key for entry in self.not_left_out() if entry.key not in shown}

    def _check(self) -> None:
        """Say so when the request is over its limit although everything was done."""
        used = self.used_tokens()
        if used > self.limits.available_tokens:
            cause = Cause.STILL_OVER_NOT_DURABLE if self.held else Cause.STILL_OVER
            over = used - self.limits.available_tokens
            self.boundary.note("check", "failed", Reason(cause, tokens=over))

    def aligned_state(self, state: SessionState | None = None) -> SessionState:
        """The session with this turn's history, before anything is decided about it.

        `state` is the session as it is now, where something else of it was learned meanwhile.
        """
        assert self.alignment is not None
        return replace(
            state or self.state,
            path=self.alignment.keys,
            ids=tuple([entry.id for entry in self.entries]),
            aliases=self.alignment.aliases,
            dormant=self.dormant,
        )

    def next_state(self) -> SessionState:
        """The session after this turn."""
        if not self.shaped or self.alignment is None:
            return replace(self.state, turn=self.number, requests=self.turn)
        return replace(
            self.aligned_state(),
            turn=self.number,
            requests=self.turn,
            edits=self.edits,
            sent_at=self.now,
            sent_estimate_tokens=self.fixed_tokens + self.view.tokens,
            sent_model=self.request.model,
            sent_format=self.request.format,
            blocks=self._marked_blocks(),
        )

    def _marked_blocks(self) -> tuple[str, ...]:
        """The marks of the blocks in this session, with those of this turn."""
        known = self.state.blocks
        before = set(self.state.edits)
        new = [e.text for e in self.edits if isinstance(e, Insert) and e not in before]
        marks = (block_mark(text, self.secret) for text in new)
        return (*known, *(mark for mark in marks if mark not in known))[-MOST_BLOCKS:]


MOST_BLOCKS: Final = 512
"""So many recalled blocks of a session are recognised when they come back."""


def is_block(edit: Edit) -> bool:
    """Whether it is a recalled block, and no standing one."""
    return isinstance(edit, Insert) and edit.stage != "stand"


def without_blocks(edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """These edits without recalled blocks."""
    return tuple(edit for edit in edits if not is_block(edit))


def _still_waiting(
    resting: Sequence[tuple[Edit, int]], awake: set[Edit], turn: int
) -> tuple[tuple[Edit, int], ...]:
    """Edits that rest, each since when it first did, and not for too long."""
    since: dict[Edit, int] = {}
    for edit, first in resting:
        if edit not in awake and turn - first <= DORMANT_TURNS:
            since.setdefault(edit, first)
    return tuple(since.items())
