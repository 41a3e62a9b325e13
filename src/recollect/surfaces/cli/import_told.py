"""What is told about an import: each file's counts and complaints, and the sum of them.

Never says what a message holds; lines are named by their numbers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import click

from recollect.surfaces.cli.explain_text import plain_line
from recollect.transfer.transcripts import ImportCounts

_TOLD_LINES = 5


@dataclass(slots=True, kw_only=True)
class FileTold:
    """What became of one file."""

    file: str
    kind: str
    sessions: int = 0
    messages: ImportCounts = field(default_factory=ImportCounts)
    facts: ImportCounts | None = None
    vectors: int | None = None
    altered: int = 0
    passed_over: tuple[str, ...] = ()
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For `--json`; the lines passed over are told one by one."""
        return asdict(self)


def tell(told: FileTold, *, quiet: bool) -> None:
    """Tell people: what became of it on standard output, what is wrong on standard error."""
    name = plain_line(told.file)
    if told.problem is not None:
        click.echo(f"{name}: not imported: {plain_line(told.problem)}", err=True)
        return
    for said in told.passed_over[:_TOLD_LINES]:
        click.echo(f"{name}: {plain_line(said)}", err=True)
    if len(told.passed_over) > _TOLD_LINES:
        more = len(told.passed_over) - _TOLD_LINES
        click.echo(f"{name}: {more:,} more of the kind", err=True)
    if told.altered:
        click.echo(
            f"{name}: {told.altered:,} lines held secrets; they are kept masked, "
            "and an export differs there",
            err=True,
        )
    if not quiet:
        sessions = f", {told.sessions:,} sessions" if told.sessions > 1 else ""
        click.echo(f"{name} ({told.kind}{sessions}): {counted(told)}")


def counted(told: FileTold) -> str:
    """The counts as one sentence."""
    counts = told.messages
    parts = [f"{counts.read:,} messages read", f"{counts.stored:,} stored"]
    if counts.noise:
        parts[-1] += f" ({counts.noise:,} of them noise)"
    parts.append(f"{counts.known:,} known")
    for count, word in (
        (counts.forgotten, "forgotten before and left out"),
        (counts.skipped, "recalled blocks left out"),
        (len(told.passed_over), "passed over"),
    ):
        if count:
            parts.append(f"{count:,} {word}")
    if told.facts is not None:
        parts.append(f"{told.facts.read:,} facts read, {told.facts.stored:,} stored")
        if told.facts.forgotten:
            parts.append(f"{told.facts.forgotten:,} forgotten before")
    if told.vectors is not None:
        parts.append(f"{told.vectors:,} vectors stored")
    return ", ".join(parts)


def summed(told: list[FileTold]) -> FileTold:
    """All files together."""
    whole = FileTold(file="", kind="")
    for one in told:
        whole.messages = whole.messages.plus(one.messages)
        whole.passed_over += one.passed_over
        if one.facts is not None:
            whole.facts = (whole.facts or ImportCounts()).plus(one.facts)
        if one.vectors is not None:
            whole.vectors = (whole.vectors or 0) + one.vectors
        whole.altered += one.altered
    return whole


def totals(told: list[FileTold]) -> dict[str, Any]:
    """The sums that `--json` ends with."""
    whole = summed(told)
    return {
        "files": len(told),
        "not_imported": sum(one.problem is not None for one in told),
        **asdict(whole.messages),
        "facts": 0 if whole.facts is None else whole.facts.stored,
        "vectors": whole.vectors or 0,
        "altered": whole.altered,
        "passed_over": len(whole.passed_over),
    }
