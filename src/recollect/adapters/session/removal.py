"""Forgets and redacts in every place that holds a memory: store, spool, and files of this machine.
Commands and pages both plan first, ask, and then act."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recollect.core.values.upkeep import ForgetOrder

if TYPE_CHECKING:
    from pathlib import Path

    from recollect.adapters.session.clean_files import FilesOrder
    from recollect.core.ports import Spool, Store
    from recollect.core.upkeep.certificates import Progress, RedactionReport
    from recollect.core.upkeep.masks import Masks
    from recollect.core.upkeep.matching import ForgetTargets
    from recollect.core.values.upkeep import Certificate
    from recollect.system.config.settings import Redaction

_OWN_PATTERNS = "--pattern masks only data that is stored now. For later messages, run this again."
_REDACTION_OFF = "redaction.enabled is off: new messages are stored unmasked; turn it on."
_PII_OFF = "redaction.pii is off: new personal data is stored unmasked; turn it on."


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPlace:
    """A memory with its spools and files."""

    store: Store
    space: str
    spools: Sequence[Spool] = ()
    has_files: bool = True
    """True if chat transcripts of this machine belong to the memory."""
    workspace: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPlan:
    """The data that a request to forget would remove."""

    order: ForgetOrder
    targets: ForgetTargets = field(repr=False)
    files: FilesOrder | None = field(default=None, repr=False)
    """The changes to files; None if no file can contain the data."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of findings in files, by kind."""
    cannot: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return self.files is not None and self.targets.nothing and not any(self.counts.values())

    @property
    def unsearched(self) -> tuple[str, ...]:
        """Places that were not searched, without the places that forgetting can never reach."""
        return tuple(line for line in self.cannot if line not in standing_limits())

    @property
    def said(self) -> str:
        """The kinds and numbers of data that would be removed."""
        from recollect.core.upkeep.certificates import count_text

        counts = {
            "messages": self.targets.messages,
            "facts": len(self.targets.facts),
            "records in ledger, jobs and session states": self.targets.records,
            **self.counts,
        }
        return ", ".join(count_text(count, kind) for kind, count in counts.items() if count)


async def plan_forgetting(place: RemovalPlace, order: ForgetOrder, *, look: bool) -> ForgetPlan:
    """Find what a request to forget would remove. With `look`, also search the files."""
    from recollect.adapters.session.clean_files import FilesOrder, forget_in_files
    from recollect.core.upkeep.forget import find_targets
    from recollect.core.upkeep.matching import ForgetTargets, find_covered_facts

    if order.facts and not order.segments:
        targets = ForgetTargets(facts=await find_covered_facts(place.store, order))
        return ForgetPlan(order=order, targets=targets)
    targets = ForgetTargets()
    if look or place.workspace is not None or order.segments:
        # otherwise it is not necessary to read all messages
        targets = await find_targets(place.store, place.spools, order)
    segments = [*(target.segment for target in targets.stored_segments), *targets.spooled_segments]
    files = FilesOrder(
        order=order,
        said=tuple(
            {segment.text for segment in segments if segment.id in frozenset(order.segments)}
        ),
        all_said=tuple({segment.text for segment in segments})
        if place.workspace is not None
        else (),
        workspace=place.workspace,
    )
    plan = ForgetPlan(order=order, targets=targets, files=files)
    if not (look and place.has_files):
        return plan
    file_findings = await asyncio.to_thread(forget_in_files, place.space, files, only_look=True)
    return replace(plan, counts=dict(file_findings.counts), cannot=tuple(file_findings.cannot))


async def forget_planned(place: RemovalPlace, plan: ForgetPlan) -> Certificate:
    """Forget what was planned, and return the certificate."""
    from recollect.adapters.session.clean_files import forget_in_files
    from recollect.core.upkeep.certificates import extend_certificate
    from recollect.core.upkeep.forget import forget

    # files first: if this is interrupted, the archive still knows the words
    file_result = None
    if plan.files is not None and place.has_files:
        file_result = await asyncio.to_thread(forget_in_files, place.space, plan.files)
    certificate = await forget(place.store, place.spools, plan.order, now=plan.order.at)
    if file_result is None:
        return certificate
    return extend_certificate(
        certificate, counts=file_result.counts, covers=file_result.covers, cannot=file_result.cannot
    )


def standing_limits() -> frozenset[str]:
    """List the copies that forgetting can never reach, so that pages need not repeat them."""
    from recollect.adapters.session.clean_files import STANDING
    from recollect.core.upkeep.forget import CANNOT

    return frozenset((*CANNOT, *STANDING))


async def redact_stored(
    place: RemovalPlace,
    masks: Masks,
    rules: Redaction,
    *,
    apply: bool,
    progress: Progress | None = None,
) -> RedactionReport:
    """Find secrets in everything stored, and with `apply` mask them. The report contains no
    secret."""
    from recollect.adapters.session.clean_files import redact_in_files
    from recollect.core.upkeep import certificates
    from recollect.core.upkeep.forget import package_version
    from recollect.core.upkeep.redact import redact

    now = time.time()
    files = None
    if place.has_files:
        files = await asyncio.to_thread(
            redact_in_files, place.space, masks, workspace=place.workspace, apply=apply
        )
    result = await redact(
        place.store,
        place.spools,
        masks,
        now=now,
        apply=apply,
        progress=progress or (lambda *_: None),
    )
    if files is not None:
        result.add(files)
    notes = [_OWN_PATTERNS] if masks.patterns and result.applied else []
    if not rules.enabled:
        notes.append(_REDACTION_OFF)
    elif masks.pii and not rules.pii:
        notes.append(_PII_OFF)
    notes_coverage = () if place.workspace is None else (certificates.COVERS_NOTES,)
    return certificates.RedactionReport(
        redacted_at=now,
        space=place.space,
        engine=(await place.store.stats()).engine,
        version=package_version(),
        result=result,
        covers=certificates.COVERS + notes_coverage,
        notes=tuple(notes),
    )
