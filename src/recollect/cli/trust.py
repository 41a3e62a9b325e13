"""`recollect trust`: shows what a project's settings file may not set by itself, and allows it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from recollect.cli.store_options import json_option, print_json
from recollect.errors import RecollectError
from recollect.system.config.fields import holds_text
from recollect.system.config.keys import known_keys
from recollect.system.config.load import parse_file
from recollect.system.config.trust import (
    FILE_NAME,
    ProjectFile,
    UnreadFile,
    is_trusted,
    printable,
    read_project_file,
    record_trust,
    revoke_trust,
    trust_records,
    withheld_values,
)
from recollect.system.plain_text import number_of

_END_CHARS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WithheldLine:
    """A setting of a project's file that only the user may decide."""

    key: str
    value: Any

    def __str__(self) -> str:
        # in ASCII: no sign can hide another, turn the line round or move the cursor
        items = len(self.value) if isinstance(self.value, tuple) else 0
        value = json.dumps(self.value)
        shown = _short(value)
        return f"{self.key} = {shown}{f'   ({items} items)' * (shown != value and items > 0)}"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"key": self.key, "value": self.value}


@click.command("trust")
@click.argument("file", type=click.Path(path_type=Path), default=Path(FILE_NAME), metavar="[FILE]")
@click.option("--yes", is_flag=True, help="Ask nothing: trust the file as it is now.")
@click.option("--list", "listing", is_flag=True, help="List the files that you trust.")
@click.option("--revoke", is_flag=True, help="Trust FILE no longer.")
@json_option
def trust(*, file: Path, yes: bool, listing: bool, revoke: bool, as_json: bool) -> None:
    """Review a project's recollect.toml, and allow it to set what only you may set.

    \b
    recollect trust              the file in the current folder
    recollect trust FOLDER       the file in another folder
    recollect trust --list       all files that you trust

    A recollect.toml in a folder may set budgets and windows. Everything else in it (servers, paths,
    models, stores, redaction and similar) is ignored until you trust the file. FILE must be named
    recollect.toml. Shows these settings, those with a server, path or key first, and asks. --json
    shows long values in full. A file that changes later has to be trusted
    again. With --json it asks nothing, and trusts the file only with --yes. Exits with 1 if the
    file is not trusted.
    """
    if listing:
        _list_trusted(as_json=as_json)
        return
    folder = _folder_of(file)
    if revoke:
        _revoke(folder.resolve() / FILE_NAME, as_json=as_json)
        return
    found = _found(folder)
    lines = withheld_lines(found)
    trusted = is_trusted(found)
    if lines and not trusted:
        if not as_json:
            click.echo(f"{printable(found.path)} has {number_of(len(lines), 'setting')} to review:")
            for line in lines:
                click.echo(f"  {line}")
        trusted = yes or (not as_json and _is_allowed())
        if trusted:
            record_trust(found)
    if as_json:
        shown = [line.to_dict() for line in lines]
        print_json({"file": str(found.path), "trusted": trusted or not lines, "settings": shown})
    elif not lines:
        click.echo(f"{printable(found.path)} sets nothing that needs your trust.")
    elif trusted:
        click.echo(f"{printable(found.path)} is trusted until it changes.")
    else:
        click.echo("Not trusted: these settings stay ignored.")
    if lines and not trusted:
        raise SystemExit(1)


def withheld_lines(file: ProjectFile) -> list[WithheldLine]:
    """The settings of a project's file that only the user may decide: texts first."""
    withheld = withheld_values(parse_file(file.data, file.path))
    lines = [WithheldLine(key=key, value=one.value) for key, one in withheld.items()]
    return sorted(lines, key=lambda line: not holds_text(known_keys()[line.key].hint))


def _short(text: str) -> str:
    """A value's first and last characters, so that no line pushes another off the screen."""
    return text if len(text) <= 2 * _END_CHARS else f"{text[:_END_CHARS]} ... {text[-_END_CHARS:]}"


def _folder_of(file: Path) -> Path:
    if file.name == FILE_NAME:
        return file.parent
    if file.is_dir():
        return file
    raise RecollectError(
        f"{printable(file)} must be a {FILE_NAME} or its folder; pass any other settings file "
        "with --config, which trusts it for that command"
    )


def _found(folder: Path) -> ProjectFile:
    found = read_project_file(folder)
    if isinstance(found, UnreadFile):
        raise RecollectError(f"{found}; replace it with a plain file, or name it with --config")
    if found is None:
        raise RecollectError(
            f"{printable(folder.resolve())} has no {FILE_NAME} of a project: run this in the "
            "folder of one, or name the file"
        )
    return found


def _is_allowed() -> bool:
    if not sys.stdin.isatty():
        raise RecollectError(
            "cannot ask for confirmation (no terminal): pass --yes to trust the file as it is"
        )
    return click.confirm("Trust this file?", default=False, err=True)


def _revoke(path: Path, *, as_json: bool) -> None:
    revoked = revoke_trust(path)
    if as_json:
        print_json({"file": str(path), "revoked": revoked})
    else:
        click.echo(
            f"{printable(path)} {'is' if revoked else 'was'} not trusted{' any more' * revoked}."
        )
    if not revoked:
        raise SystemExit(1)


def _list_trusted(*, as_json: bool) -> None:
    rows = [(record.path, _state(record.path)) for record in trust_records()]
    if as_json:
        print_json({"files": [{"file": str(path), "state": state} for path, state in rows]})
        return
    for path, state in rows:
        click.echo(f"{state:8} {printable(path)}")
    if not rows:
        click.echo("You trust no project's settings file.", err=True)


def _state(path: Path) -> str:
    """What became of a file since it was trusted."""
    found = read_project_file(path.parent)
    if not isinstance(found, ProjectFile):
        return "missing"
    return "trusted" if is_trusted(found) else "changed"
