"""`recollect redact`: what secrets stand in what is stored, and with `--apply` mask them there.

Prints counts, kinds and names of sessions; never a secret, nor a part of one. Without `--apply`
nothing is changed. Exit code 1 where any stands in clear still: found and not masked, in names that
stay, or in files that could not be, or are not ours to be, changed.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from recollect.cli.progress import ShownProgress
from recollect.cli.store_options import Place, print_json, store_options, with_store
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.ports import Store
    from recollect.core.upkeep.certificates import RedactionReport, RedactionResult
    from recollect.core.upkeep.masks import Masks

_OWN_PATTERNS = (
    "A --pattern masks what is stored now; it is not among the rules that mask on arrival, so what "
    "is said or sent anew is stored as it comes: redact again after that."
)
_OFF = "redaction.enabled is off: what comes from now on is stored as it comes; turn it on."
_NO_PII = "redaction.pii is off: personal data that comes from now on is kept; turn it on."


@click.command("redact")
@click.option("--apply", "apply_", is_flag=True, help="Mask them; without it they are counted.")
@click.option(
    "--pattern", "patterns", multiple=True, metavar="REGEX", help="Also what this matches."
)
@click.option("--pii", is_flag=True, help="Also e-mail addresses, phone and card numbers.")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also its daily notes, memory/YYYY-MM-DD.md.",
)
@click.option("-v", "--verbose", is_flag=True, help="List all that it covers and cannot.")
@store_options
def redact(
    *,
    verbose: bool,
    apply_: bool,
    patterns: tuple[str, ...],
    pii: bool,
    workspace: Path | None,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Find secrets in what is stored already; with --apply, mask them.

    Looks through archive, facts, ledger, summaries, session states, jobs and spool, and through
    the transcripts of Recollect's own agent in this space. The rest of a message stays, and is
    found as before.
    """
    from recollect.core.upkeep.certificates import redaction_json as report_json
    from recollect.core.upkeep.certificates import redaction_text
    from recollect.core.upkeep.masks import Masks, own_patterns

    own = own_patterns(patterns)

    async def work(store: Store, place: Place) -> RedactionReport:
        masks = Masks(pii=pii or place.settings.redaction.pii, patterns=own)
        with ShownProgress(quiet=as_json) as shown:
            done = await _redacted(store, place, masks, workspace, apply=apply_, shown=shown)
        return await _report(store, place, masks, done, workspace)

    report = with_store(url, space, work)
    if as_json:
        print_json(report_json(report))
    else:
        click.echo(redaction_text(report, plain=plain_line, whole=verbose))
        if report.done.secrets and not apply_:
            source = click.get_current_context().get_parameter_source("space")
            named = space if source is ParameterSource.COMMANDLINE else None
            command = apply_command(
                patterns=patterns, pii=pii, workspace=workspace, url=url, space=named
            )
            click.echo(f"\nMask them with `{command}`.")
    if report.done.in_clear:
        raise SystemExit(1)


def apply_command(
    *,
    patterns: tuple[str, ...],
    pii: bool,
    workspace: Path | None,
    url: str | None,
    space: str | None,
) -> str:
    """The command that masks what these options found; without a URL that may hold a password."""
    words = ["recollect", "redact", "--apply"]
    for pattern in patterns:
        words += ["--pattern", pattern]
    if pii:
        words.append("--pii")
    if workspace is not None:
        words += ["--workspace", str(workspace)]
    if url is not None:
        words += ["--store", "URL" if "@" in url else url]
    if space is not None:
        words += ["--space", space]
    return shlex.join(words)


async def _redacted(
    store: Store,
    place: Place,
    masks: Masks,
    workspace: Path | None,
    *,
    apply: bool,
    shown: ShownProgress,
) -> RedactionResult:
    from recollect.adapters.session.redact_files import redact_in_files
    from recollect.adapters.wiring import open_spool
    from recollect.core.upkeep.certificates import joined
    from recollect.core.upkeep.redact import redact as redact_all

    spool = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        files = await asyncio.to_thread(
            redact_in_files, place.space, masks, workspace=workspace, apply=apply
        )
        done = await redact_all(
            store, [spool], masks, now=time.time(), apply=apply, progress=shown.show
        )
    finally:
        await spool.close()
    cannot = [*files.cannot, *(await _cache_emptied(store, done) if apply else ())]
    return joined(
        done,
        kinds=files.kinds,
        changed=files.changed,
        sessions=files.sessions,
        cannot=cannot,
        left=files.left,
        unread=files.unread,
    )


async def _cache_emptied(store: Store, done: RedactionResult) -> tuple[str, ...]:
    """Empty the cache of vectors that were made of the texts as they were."""
    from recollect.adapters.wiring.models import forget_cached
    from recollect.core.upkeep.forget import Unreached
    from recollect.core.values.fact import fact_identity
    from recollect.core.values.upkeep import Forgotten

    try:
        marks = tuple(map(fact_identity, done.facts))
        await forget_cached(store, Forgotten(segments=done.segments, message_ids=marks))
    except Unreached as left:
        return (str(left),)
    return ()


async def _report(
    store: Store, place: Place, masks: Masks, done: RedactionResult, workspace: Path | None
) -> RedactionReport:
    from recollect import __version__
    from recollect.core.upkeep.certificates import COVERS, COVERS_NOTES, RedactionReport

    notes = []
    if masks.patterns and done.applied:
        notes.append(_OWN_PATTERNS)
    if not place.settings.redaction.enabled:
        notes.append(_OFF)
    elif masks.pii and not place.settings.redaction.pii:
        notes.append(_NO_PII)
    return RedactionReport(
        at=time.time(),
        space=place.space,
        engine=(await store.stats()).engine,
        version=__version__,
        done=done,
        covers=COVERS if workspace is None else (*COVERS, COVERS_NOTES),
        notes=tuple(notes),
    )
