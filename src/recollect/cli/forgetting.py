"""`recollect memory forget`, `facts forget` and `redact`: remove or mask stored data permanently.

Without `--yes`, `forget` lists what it would remove, and asks. The certificate of `forget` contains
no message content. `redact` prints counts, kinds and session names, but no secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.adapters.session.removal import (
    RemovalPlace,
    forget_planned,
    plan_forgetting,
    redact_stored,
    standing_limits,
)
from recollect.cli.store_options import (
    Memory,
    ShownProgress,
    change_options,
    confirm,
    confirm_change,
    heading,
    memory_options,
    moment_from,
    when,
    yes_option,
)
from recollect.core.values.segment import SegmentId
from recollect.core.values.upkeep import ForgetOrder
from recollect.errors import RecollectError
from recollect.hosts.inspect.searching import fact_book
from recollect.hosts.inspect.sessions import resolve_session
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.upkeep.matching import ForgetTargets
    from recollect.core.values.upkeep import Certificate

# Not measured: the list and the question after it fit one screen.
_MAX_LISTED = 20
_EXCERPT_CHARS = 100
_workspace_option = click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also search the chat agent's daily notes in this workspace: memory/YYYY-MM-DD.md.",
)


@click.command("forget")
@click.option(
    "--segment", "segments", multiple=True, metavar="ID", help="Forget the message with this id."
)
@click.option(
    "--session",
    "sessions",
    multiple=True,
    metavar="NAME",
    help="Forget the messages of this session.",
)
@click.option(
    "--before",
    metavar="WHEN",
    help="Forget messages before this time: 2026-01-31, or 30d for 30 days ago.",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Forget messages since this time: 2026-01-31, or 2h for two hours ago.",
)
@click.option(
    "--matching", metavar="TEXT", help="Forget all messages that contain this text, ignoring case."
)
@click.option(
    "--pattern", metavar="REGEX", help="Forget all messages that match this regular expression."
)
@_workspace_option
@yes_option
@change_options
async def memory_forget(
    *,
    segments: tuple[str, ...],
    sessions: tuple[str, ...],
    before: str | None,
    since: str | None,
    matching: str | None,
    pattern: str | None,
    workspace: Path | None,
    yes: bool,
    memory: Memory,
) -> None:
    """Remove messages permanently, and print a certificate.

    Removes the messages from the store, the search index, facts, recorded requests and waiting
    writes, and from the chat transcripts of this memory. The messages stay removed, even if a
    client sends its history again. --segment, --matching and --pattern also remove copies of the
    content in other sessions. --session, --since and --before remove only the messages that they
    select. If you combine --session, --since and --before, a message must match all of them."""
    from recollect.adapters.session.clean_files import resolve_sessions

    order = ForgetOrder(
        at=time.time(),
        segments=tuple(SegmentId(segment) for segment in segments),
        said_before=None if before is None else moment_from(before, option="--before"),
        said_after=None if since is None else moment_from(since, option="--since"),
        matching=matching,
        pattern=pattern,
    )
    if not (segments or sessions or order.by_time or matching or pattern):
        raise RecollectError(
            "pass what to forget: --segment, --session, --since, --before, --matching or --pattern"
        )
    if matching is not None and not matching.strip():
        raise RecollectError(
            "--matching must not be empty, because every message would match: give a text"
        )
    async with memory.open() as store:
        session_names = [await resolve_session(store, session) for session in sessions]
        order = replace(order, sessions=resolve_sessions(memory.space, session_names))
        certificate = await _forget(store, memory, order, workspace, yes=yes)
    _print(memory, certificate)


@click.command("forget")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option(
    "--sources", is_flag=True, help="Also forget the messages that the facts were found in."
)
@click.option("--versions", is_flag=True, help="Also forget the other versions of the facts.")
@yes_option
@change_options
async def facts_forget(
    *, ids: tuple[str, ...], sources: bool, versions: bool, yes: bool, memory: Memory
) -> None:
    """Remove facts permanently, and print a certificate.

    The messages stay, but Recollect does not extract the same fact from them again. --sources also
    removes the messages, and copies of them in other sessions."""
    async with memory.open() as store:
        book = fact_book(store, memory.settings)
        order = await book.order_to_forget(ids, sources=sources, versions=versions)
        certificate = await _forget(store, memory, order, None, yes=yes)
    _print(memory, certificate)


async def _forget(
    store: Store, memory: Memory, order: ForgetOrder, workspace: Path | None, *, yes: bool
) -> Certificate | None:
    """Forget after confirmation. Return None if nothing matches, or the user refused."""
    async with memory.open_spool() as spool:
        place = RemovalPlace(store=store, space=memory.space, spools=(spool,), workspace=workspace)
        plan = await plan_forgetting(place, order, look=not yes)
        if not yes:
            if plan.nothing:
                _report_nothing(plan.cannot)
                return None
            for line in _target_lines(plan.targets) if not memory.as_json else ():
                click.echo(line)
            question, effect = f"Forget {plan.said} permanently?", f"{plan.said} would be forgotten"
            if not confirm(question, effect, as_json=memory.as_json):
                return None
        return await forget_planned(place, plan)


def _target_lines(targets: ForgetTargets) -> Iterator[str]:
    messages = [
        (heading(stored_segment.segment), stored_segment.segment.text)
        for stored_segment in targets.stored_segments
    ]
    messages += [
        (heading(segment, "spooled"), segment.text) for segment in targets.spooled_segments
    ]
    facts = [
        (f"fact  {when(fact.at)}  {plain_line(fact.id)}", fact.content) for fact in targets.facts
    ]
    for line, text in (*messages[:_MAX_LISTED], *facts[:_MAX_LISTED]):
        yield f"{line}\n     {plain_line(text)[:_EXCERPT_CHARS]}"
    unlisted_count = max(len(messages) - _MAX_LISTED, 0) + max(len(facts) - _MAX_LISTED, 0)
    if unlisted_count:
        yield f"… and {unlisted_count:,} more"
    texts: dict[str, set[str]] = {}
    for stored_segment in targets.stored_segments:
        segment = stored_segment.segment
        texts.setdefault(segment.message_id, set()).add(segment.text)
    if any(len(parts) > 1 for parts in texts.values()):
        yield "A message is forgotten with its documents: both are one message to the client."


def _report_nothing(cannot: Sequence[str]) -> None:
    click.echo("No stored message matches; nothing was forgotten.", err=True)
    for line in cannot:
        if line not in standing_limits():
            click.echo(f"Not searched: {plain_line(line)}", err=True)


def _print(memory: Memory, certificate: Certificate | None) -> None:
    from recollect.core.upkeep.certificates import certificate_json, certificate_text

    if certificate is None:
        raise SystemExit(1)
    nothing = not any(certificate.counts.values())
    if memory.as_json or not nothing:  # JSON output includes zeros, for programs
        text = certificate_text(certificate, standing=standing_limits())
        memory.show(certificate_json(certificate), [text])
    if nothing:
        _report_nothing(certificate.cannot)
        raise SystemExit(1)


@click.command("redact")
@click.option("--apply", "apply_", is_flag=True, help="Mask the secrets. Default: count them.")
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="REGEX",
    help="Also find text that matches this regular expression; may be repeated.",
)
@click.option(
    "--pii", is_flag=True, help="Also find e-mail addresses, phone numbers and card numbers."
)
@yes_option
@_workspace_option
@memory_options
async def redact(
    *,
    apply_: bool,
    patterns: tuple[str, ...],
    pii: bool,
    yes: bool,
    workspace: Path | None,
    memory: Memory,
) -> None:
    """Count secrets in stored data. With --apply, mask the secrets.

    Searches messages, facts, recorded requests, summaries, session states, jobs, waiting writes,
    and the chat transcripts of this memory. The rest of each message stays and can be recalled.
    Exits 1 if secrets remain unmasked."""
    from recollect.core.rules.patterns import compile_patterns
    from recollect.core.upkeep import certificates
    from recollect.core.upkeep.masks import Masks

    own_patterns = compile_patterns(patterns)
    confirm_change("Mask all secrets in this memory permanently?", yes=yes or not apply_)
    memory.only_reads = not apply_
    async with memory.open() as store:
        rules = memory.settings.redaction
        masks = Masks(pii=pii or rules.pii, patterns=own_patterns)
        with ShownProgress(quiet=memory.as_json) as progress:
            async with memory.open_spool() as spool:
                place = RemovalPlace(
                    store=store, space=memory.space, spools=(spool,), workspace=workspace
                )
                report = await redact_stored(
                    place, masks, rules, apply=apply_, progress=progress.show
                )
    result = report.result
    lines = [certificates.redaction_text(report)]
    if result.secrets and not apply_:
        lines.append("\nMask them with the same command and --apply.")
    memory.show(certificates.redaction_json(report), lines, failed=bool(result.in_clear))
