"""`recollect facts export|import|add|edit|forget`: facts as files that people edit, and by hand.

In a Markdown folder a changed line is a new version, a new line a new fact. A line that is gone is
reported; it is forgotten only on request. Files that are not of the layout, or that somebody else
wrote under such a name, are never touched. `forget` lists what would go and asks, unless told not
to, and prints the certificate without a word of what was said.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.durable import replace_file
from recollect.errors import RecollectError
from recollect.formats.memory_folder import (
    EXPORTED,
    FACTS,
    FOLDER,
    MAIN_FILES,
    PREFERENCES,
    RESEARCH,
    WRITTEN_MARK,
    belongs,
    day_of,
)
from recollect.plain_files import read_inside
from recollect.plain_text import plain_line
from recollect.session.files import private_folder
from recollect.surfaces.cli.facts.listing import (
    TypeChoice,
    book_of,
    fact_as_json,
    fact_line,
    is_past,
    shown_id,
    statement,
    with_facts,
)
from recollect.surfaces.cli.memory.looking import heading
from recollect.surfaces.cli.store_options import (
    Place,
    console,
    filling_store_options,
    print_json,
    store_options,
    with_store,
)
from recollect.values.fact import EXTRACTED_TYPES

if TYPE_CHECKING:
    from recollect.engine.facts.folder import FolderTaken
    from recollect.facts.results import FactWritten
    from recollect.ports import Spool, Store
    from recollect.upkeep.matching import ForgetTargets
    from recollect.values.fact import Fact, FactType
    from recollect.values.upkeep import Certificate, ForgetOrder


# The files of a Markdown folder

_MOST_BYTES: Final = 64 << 20


def read_files(folder: Path) -> dict[str, str]:
    """Read the folder's files, by their place in it; `folder` may be the `memory` itself.

    The folder may be a cloned project's: a link that leads out of it is an error.
    """
    at = _holding(folder)
    paths = [at / path for path in (*MAIN_FILES, EXPORTED)]
    paths += sorted((at / FOLDER / "daily").glob("*.md"))
    texts: dict[str, str] = {}
    for path in paths:
        name = path.relative_to(at).as_posix()
        if not belongs(name) or not path.is_file():
            continue
        try:
            texts[name] = read_inside(at, name, _MOST_BYTES)[0].decode("utf-8")
        except OSError as error:
            raise RecollectError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RecollectError(f"{path} is no UTF-8 text; save it as UTF-8") from error
    return texts


def write_files(folder: Path, texts: dict[str, str], *, before: dict[str, str]) -> int:
    """Write the files that differ, and remove days that are over; returns how many changed."""
    at = _holding(folder)
    changed = 0
    try:
        for name, text in sorted(texts.items()):
            if before.get(name) != text:
                private_folder((at / name).parent)
                replace_file(at / name, text.encode("utf-8"))
                changed += 1
        for name in sorted(before.keys() - texts.keys()):
            if day_of(name) is not None and WRITTEN_MARK in before[name]:
                (at / name).unlink()
                changed += 1
    except OSError as error:
        raise RecollectError(f"{folder} cannot be written: {error.strerror}") from error
    return changed


def strangers(texts: dict[str, str]) -> list[str]:
    """Files under the layout's names that no export wrote."""
    return [name for name, text in texts.items() if name != EXPORTED and WRITTEN_MARK not in text]


def _holding(folder: Path) -> Path:
    """The folder that holds `memory/`."""
    names = [Path(path).name for path in (PREFERENCES, FACTS, RESEARCH)]
    itself = folder.name == FOLDER and any((folder / name).is_file() for name in names)
    return folder.parent if itself else folder


# `recollect facts export`: facts as Markdown files that people read and edit, or as JSON.


@click.command("export")
@click.option(
    "--markdown",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write memory/*.md into DIR.",
)
@click.option("--force", is_flag=True, help="Write over what was changed there by hand.")
@store_options
def export(*, folder: Path | None, force: bool, url: str | None, space: str, as_json: bool) -> None:
    """Write all facts: as a folder of Markdown, or with --json alone as one object."""
    if folder is None and not as_json:
        raise RecollectError("say how: --markdown DIR writes a folder, --json one object")

    async def work(store: Store, place: Place) -> tuple[tuple[Fact, ...], int]:
        from recollect.engine.facts.folder import every_fact

        facts = await every_fact(book_of(store, place))
        changed = 0 if folder is None else await _write(store, place, folder, facts, force=force)
        return facts, changed

    facts, changed = with_facts(url, space, work)
    if folder is None:
        print_json({"facts": [fact_as_json(fact) for fact in facts]})
    elif as_json:
        print_json({"folder": str(folder), "facts": len(facts), "files_changed": changed})
    else:
        click.echo(f"{folder}: {len(facts):,} facts, {changed:,} files written")


async def _write(
    store: Store, place: Place, folder: Path, facts: tuple[Fact, ...], *, force: bool
) -> int:
    from recollect.engine.facts.folder import read_plan
    from recollect.formats.memory_folder import read_folder, write_folder

    before = read_files(folder)
    others = strangers(before)
    if others and not force:
        raise RecollectError(
            f"{folder} holds {' and '.join(others)}, which no export wrote; give another folder, "
            "or --force to write over them"
        )
    plan = await read_plan(store, read_folder(before), place.settings.redaction)
    if not force and (plan.edits or plan.additions):
        raise RecollectError(
            f"{folder} was changed by hand in {len(plan.edits) + len(plan.additions)} places; "
            f"`recollect facts import --markdown {folder}` takes them in, --force drops them"
        )
    return write_files(folder, write_folder(facts), before=before)


# `recollect facts add` and `edit`: what a person knows better.


@click.command("add")
@click.argument("text", metavar="TEXT")
@click.option(
    "--type", "kind", type=TypeChoice(EXTRACTED_TYPES), help="Its type. Default: by its words."
)
@click.option("--subject", default="", metavar="NAME", help="What it is about.")
@filling_store_options
def add(
    *, text: str, kind: FactType | None, subject: str, url: str | None, space: str, as_json: bool
) -> None:
    """Write a fact in your own words; a dash reads it from standard input.

    What it corrects is replaced, and kept as history.
    """

    async def work(store: Store, place: Place) -> FactWritten:
        return await book_of(store, place).add(_words(text), type=kind, subject=subject)

    _print_written(with_store(url, space, work, create=True), as_json=as_json)


@click.command("edit")
@click.argument("id_", metavar="ID")
@click.argument("text", metavar="[TEXT]", required=False)
@click.option("--type", "kind", type=TypeChoice(EXTRACTED_TYPES), help="Another type.")
@store_options
def edit(
    *, id_: str, text: str | None, kind: FactType | None, url: str | None, space: str, as_json: bool
) -> None:
    """Correct a fact: a new version in your words; the one before is kept as history.

    With --type alone the words stay as they are, and so does who said them.
    """
    if text is None and kind is None:
        raise RecollectError("say what it should be: the new TEXT, --type, or both")

    async def work(store: Store, place: Place) -> FactWritten:
        book = book_of(store, place)
        fact = await book.find(id_)
        if text is None and kind in (None, fact.type):
            return Unchanged(outcome="known", fact=fact, reason="it is of that type already")
        words = fact.content if text is None else _words(text)
        return await book.edit(fact.id, words, type=kind)

    from recollect.facts.results import FactWritten as Unchanged

    _print_written(with_facts(url, space, work), as_json=as_json)


def _words(text: str) -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text


def _print_written(written: FactWritten, *, as_json: bool) -> None:
    if as_json:
        print_json(written_as_json(written))
    else:
        _draw_written(written)
    if written.masked:
        click.echo(f"recollect: {written.masked} secrets in it were masked", err=True)
    if written.outcome == "refused":
        raise SystemExit(1)


def written_as_json(written: FactWritten) -> dict[str, object]:
    """What became of a statement."""
    return {
        "outcome": written.outcome,
        "fact": None if written.fact is None else fact_as_json(written.fact),
        "replaced": [fact.id for fact in written.replaced],
        "reason": written.reason,
    }


def written_line(written: FactWritten) -> str:
    """What was done, in a few words."""
    fact = written.fact
    named = "" if fact is None else f" {shown_id(fact.id)}"
    if written.outcome == "replaced" and written.replaced:
        return f"replaced {', '.join(shown_id(fact.id) for fact in written.replaced)}, now{named}"
    if written.outcome in ("added", "replaced"):
        before = fact is not None and is_past(fact)
        return f"added{named}" + (" as what held before" if before else "")
    if written.outcome == "known":
        return f"already known{named}" if named else f"already known: {written.reason}"
    return f"refused: {written.reason}"


def _draw_written(written: FactWritten) -> None:
    out = console()
    out.print(written_line(written), soft_wrap=True)
    if written.fact is not None:
        out.print(fact_line(written.fact), soft_wrap=True)
        out.print(f"     {statement(written.fact)}", soft_wrap=True)
    for fact in written.replaced:
        out.print(f"     before: {statement(fact)}", style="dim", soft_wrap=True)


# `recollect facts forget`: remove facts for good, on request with the messages they rest on


_LISTED = 20
_EXCERPT_CHARS = 100
FOLDERS = ("Markdown folders that `recollect facts export` wrote: export again to renew them",)


@click.command("forget")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--sources", is_flag=True, help="Also the messages they rest on.")
@click.option("--versions", is_flag=True, help="Also their other versions.")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="With --sources: also lines of its daily notes.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
def forget(
    *,
    ids: tuple[str, ...],
    sources: bool,
    versions: bool,
    workspace: Path | None,
    yes: bool,
    url: str | None,
    space: str,
    as_json: bool,
) -> None:
    """Forget facts for good and print a certificate.

    Digests of the same subject go along. The messages stay, and nothing is extracted from them
    again in the same words; --sources forgets them, too, wherever they were said.
    """

    async def work(store: Store, place: Place) -> Certificate | None:
        order = await book_of(store, place).order_to_forget(ids, sources=sources, versions=versions)
        return await forget_facts(store, place, order, workspace, ask=not yes, draw=not as_json)

    certificate = with_facts(url, space, work)
    if certificate is None:
        raise SystemExit(1)
    print_certificate(certificate, as_json=as_json)


async def forget_facts(
    store: Store, place: Place, order: ForgetOrder, workspace: Path | None, *, ask: bool, draw: bool
) -> Certificate | None:
    """Ask if need be, and forget; None where the answer was no."""
    from recollect.session.forget_files import FilesOrder, forget_in_files
    from recollect.upkeep.certificates import extended
    from recollect.wiring import open_spool
    from recollect.wiring.models import forget_cached

    spool = await open_spool(place.url, space=place.space, key=place.settings.store.key)
    try:
        meant = await _meant(store, spool, order)
        if ask and not _confirmed(meant, draw=draw):
            return None
        done = None
        if order.segments:  # files first: by then the archive still knows the words
            said = {segment.segment.text for segment in meant.stored}
            said |= {segment.text for segment in meant.spooled}
            files = FilesOrder(
                order=order, said=tuple(said), all_said=tuple(said), workspace=workspace
            )
            done = await asyncio.to_thread(forget_in_files, place.space, files)
        certificate = await book_of(store, place).forget(
            order, spools=[spool], cascades=(forget_cached,)
        )
    finally:
        await spool.close()
    if done is None:
        return extended(certificate, counts={}, covers=(), cannot=FOLDERS)
    return extended(
        certificate, counts=done.counts, covers=done.covers, cannot=(*done.cannot, *FOLDERS)
    )


async def _meant(store: Store, spool: Spool, order: ForgetOrder) -> ForgetTargets:
    """What would go; facts alone are found without a walk through all that was said."""
    from recollect.upkeep.forget import find_meant
    from recollect.upkeep.matching import ForgetTargets as Found
    from recollect.upkeep.matching import facts_meant

    if order.segments:
        return await find_meant(store, [spool], order)
    return Found(facts=await facts_meant(store, order))


def print_certificate(certificate: Certificate, *, as_json: bool) -> None:
    """The certificate, for people or for programs."""
    from recollect.upkeep import certificates as certificates

    if as_json:
        print_json(certificates.certificate_json(certificate))
    else:
        click.echo(certificates.certificate_text(certificate, plain=plain_line))


def _confirmed(meant: ForgetTargets, *, draw: bool) -> bool:
    what = f"{len(meant.facts):,} facts"
    if meant.messages:
        what += f" and {meant.messages:,} messages"
    if not draw or not sys.stdin.isatty():
        raise RecollectError(
            f"{what} would be forgotten; say so with --yes, since nobody can be asked here"
        )
    out = console()
    for fact in meant.facts[:_LISTED]:
        out.print(fact_line(fact), soft_wrap=True)
        out.print(f"     {statement(fact)[:_EXCERPT_CHARS]}", soft_wrap=True)
    for segment in meant.stored[:_LISTED]:
        out.print(heading(segment), soft_wrap=True)
        out.print(f"     {plain_line(segment.segment.text)[:_EXCERPT_CHARS]}", soft_wrap=True)
    left = max(len(meant.facts) - _LISTED, 0) + max(meant.messages - _LISTED, 0)
    if left:
        out.print(f"… and {left:,} more")
    return click.confirm(f"Forget {what} for good?", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What was taken in."""

    taken: FolderTaken
    passed_over: tuple[str, ...]
    certificate: Certificate | None


@click.command("import")
@click.option(
    "--markdown",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    required=True,
    help="The folder that `recollect facts export --markdown` wrote.",
)
@click.option("--forget-missing", is_flag=True, help="Forget facts whose line was deleted.")
@click.option("--yes", is_flag=True, help="Do not ask before forgetting.")
@filling_store_options
def import_(
    *, folder: Path, forget_missing: bool, yes: bool, url: str | None, space: str, as_json: bool
) -> None:
    """Take in what was changed by hand in a folder of Markdown."""

    texts = read_files(folder)
    if not texts:
        raise RecollectError(
            f"{folder} holds no memory/preferences.md, memory/facts.md or daily notes; "
            f"`recollect facts export --markdown {folder}` writes them"
        )

    async def work(store: Store, place: Place) -> Imported:
        return await _import(
            store, place, texts, forget_missing=forget_missing, ask=not yes, draw=not as_json
        )

    done = with_store(url, space, work, create=True)
    if as_json:
        print_json(_as_json(done))
    else:
        _draw(done)
    if done.taken.problems:
        raise SystemExit(1)


async def _import(
    store: Store,
    place: Place,
    texts: dict[str, str],
    *,
    forget_missing: bool,
    ask: bool,
    draw: bool,
) -> Imported:
    from recollect.engine.facts.folder import read_plan, take_folder
    from recollect.formats.memory_folder import read_folder

    read = read_folder(texts)
    book = book_of(store, place)
    plan = await read_plan(store, read, place.settings.redaction)
    certificate = None
    if forget_missing and plan.missing and plan.doubt:
        raise RecollectError(
            f"--forget-missing: {plan.doubt}, so a missing line may not mean that you deleted it; "
            "export again, or forget by id with `recollect facts forget`"
        )
    if forget_missing and plan.missing:
        order = await book.order_to_forget([fact.id for fact in plan.missing])
        certificate = await forget_facts(store, place, order, None, ask=ask, draw=draw)
    taken = await take_folder(book, plan)
    return Imported(taken=taken, passed_over=read.passed_over, certificate=certificate)


def _as_json(done: Imported) -> dict[str, Any]:
    from recollect.upkeep import certificates

    taken = done.taken
    return {
        "unchanged": taken.plan.unchanged,
        "written": [
            {"path": line.path, "line": line.number, **written_as_json(written)}
            for line, written in taken.written
        ],
        "missing": [fact.id for fact in taken.plan.missing],
        "forgotten": None
        if done.certificate is None
        else certificates.certificate_json(done.certificate),
        "of_forgotten": taken.plan.forgotten,
        "problems": list(taken.problems),
        "passed_over": list(done.passed_over),
    }


def _draw(done: Imported) -> None:
    taken = done.taken
    for line, written in taken.written:
        click.echo(f"{line.path}:{line.number}: {plain_line(written_line(written))}")
        if written.masked:
            click.echo(f"recollect: {written.masked} secrets in it were masked", err=True)
    if done.certificate is not None:
        print_certificate(done.certificate, as_json=False)
    elif taken.plan.missing:
        for fact in taken.plan.missing:
            click.echo(f"missing, and still known: {shown_id(fact.id)}  {statement(fact)}")
        click.echo("recollect: --forget-missing forgets them", err=True)
    if taken.plan.forgotten:
        lines = "1 line" if taken.plan.forgotten == 1 else f"{taken.plan.forgotten:,} lines"
        click.echo(
            f"recollect: {lines} of facts that were forgotten; export again to be rid of them",
            err=True,
        )
    if not (taken.written or taken.plan.missing or taken.problems):
        click.echo(f"nothing to do: {taken.plan.unchanged:,} facts are as they were written")
    elif taken.written:
        click.echo("recollect: export again, so that the lines name their new versions", err=True)
    for problem in taken.problems:
        click.echo(f"recollect: {problem}", err=True)
    if done.passed_over:
        named = ", ".join(done.passed_over[:5])
        click.echo(
            f"recollect: {len(done.passed_over):,} lines are no list items and were left alone: "
            f"{named}",
            err=True,
        )
