"""`recollect doctor`: what works and what to do, then every setting in force and its source.

A setting deviates when it is not at its default, or not what OpenClaw would have.

Prints data on stdout and errors on stderr; changes nothing. What the table shows and what
`--json` prints are the same rows. The exit code is 1 where something does not work.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.doctor_checks import Check, checks_of
from recollect.cli.store_options import DEFAULT_SPACE, meant_space
from recollect.errors import MissingExtra, ModelRefused, RecollectError, SettingsError
from recollect.system import config
from recollect.system.config.fields import shown
from recollect.system.config.load import OPENCLAW, PRESETS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_CLIP_CHARS = 32
_STORE_SECONDS = 5.0
_LONG_CHARS = 200
_WIDE_COLUMNS = 130  # from here on a source's own spelling of a key fits on the line
_THEIRS = {"preset": "openclaw", **OPENCLAW}
_FILE = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting as the doctor sees it."""

    key: str
    value: Any
    source: config.Source
    default: Any
    openclaw: Any

    @property
    def is_default(self) -> bool:
        """Whether the value is what it would be without any source."""
        return bool(self.value == self.default)

    @property
    def deviates(self) -> bool:
        """Whether it is not at its default, or not what OpenClaw would have."""
        return not self.is_default or self.value != self.openclaw

    def as_json(self) -> dict[str, Any]:
        """The row as `--json` prints it."""
        return {
            "value": self.value,
            "source": str(self.source),
            "source_kind": self.source.kind,
            "default": self.default,
            "is_default": self.is_default,
            "openclaw": self.openclaw,
            "deviates": self.deviates,
        }


def setting_rows(loaded: config.LoadedSettings) -> list[SettingRow]:
    """Every setting, in the order of docs/settings.md."""
    return [
        SettingRow(
            key=key.path,
            value=_presentable(key.path, config.value_of(loaded.settings, key.path)),
            source=loaded.sources[key.path],
            default=key.default,
            openclaw=_THEIRS.get(key.path, key.default),
        )
        for key in config.known_keys().values()
    ]


def _presentable(path: str, value: Any) -> Any:
    """A value as it may be shown: people paste this into bug reports."""
    if path not in ("store.url", "models.base_url") or not isinstance(value, str):
        return value
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:…@", re.sub(r"(password=)[^&\s]*", r"\1…", value))


@click.command("doctor")
@click.option("--config", "file", type=_FILE, help="Read this file instead of recollect.toml.")
@click.option("--openclaw", type=_FILE, help="Read the settings of this openclaw.json too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(*, file: Path | None, openclaw: Path | None, as_json: bool) -> None:
    """Check that all works, and show every setting in force, where it came from, what it deviates
    from.

    Tries the data folder, the store, the embedder, the provider (whether its address takes a
    connection, no more) and permissions, and says what to do.

    Beside a value that is not the default stands the default, beside one that is not OpenClaw's
    stands OpenClaw's.
    """
    try:
        loaded = config.load_settings(file=file, openclaw=openclaw)
    except SettingsError as problem:
        click.echo(f"recollect doctor: {problem}", err=True)
        raise SystemExit(2) from None
    rows = setting_rows(loaded)
    checks = checks_of(loaded, space=_space(loaded))
    if as_json:
        told = {"checks": [check.to_dict() for check in checks], **_as_object(loaded, rows)}
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        _draw(loaded, rows)
        _draw_checks(checks)
    if any(check.state == "broken" for check in checks):
        raise SystemExit(1)


def _space(loaded: config.LoadedSettings) -> str:
    """The space that commands mean here; `default` if the store cannot be asked."""
    try:
        return meant_space(Path.cwd(), None, loaded.settings)
    except RecollectError:  # the check of the store shows it
        return DEFAULT_SPACE


def _as_object(loaded: config.LoadedSettings, rows: list[SettingRow]) -> dict[str, Any]:
    return {
        "preset": loaded.settings.preset,
        "embedders": _embedders(loaded),
        "summaries": _summaries(loaded),
        "facts": _facts(loaded),
        "model_use": _model_use(loaded, as_json=True),
        "settings": {row.key: row.as_json() for row in rows},
        "presets": {name: dict(values) for name, values in PRESETS.items()},
        "notices": [{"key": notice.key, "message": notice.message} for notice in loaded.notices],
    }


def _draw(loaded: config.LoadedSettings, rows: list[SettingRow]) -> None:
    from rich.console import Console  # the drawing library only when something is drawn

    console = Console(highlight=False)
    console.print(_table(rows, full_sources=console.width >= _WIDE_COLUMNS))
    changed = sum(not row.is_default for row in rows)
    unlike = sum(row.value != row.openclaw for row in rows)
    console.print(
        f"\n[bold]{len(rows)}[/] settings, [bold]{changed}[/] not at their default, "
        f'[bold]{unlike}[/] not as OpenClaw\'s; preset "{loaded.settings.preset}"   '
        "[dim]● changed[/]"
    )
    console.print(f"vectors: {_embedders(loaded)}", markup=False)
    console.print(f"summaries: {_summaries(loaded)}", markup=False)
    console.print(f"facts: {_facts(loaded)}", markup=False)
    console.print(f"asked of models besides: {_model_use(loaded, as_json=False)}", markup=False)
    _draw_notices(console, loaded.notices)


_SIGNS = {"ok": ("✓", "green"), "note": ("-", "yellow"), "broken": ("✗", "red")}


def _draw_checks(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print()
    for check in checks:
        sign, colour = _SIGNS[check.state]
        console.print(Text.assemble((f"{sign} ", colour), (f"{check.name}: ", "bold"), check.said))
        if check.todo:
            console.print(Text(f"  → {check.todo}"))


def _summaries(loaded: config.LoadedSettings) -> str:
    """Who summarises when the window fills; nobody is asked for it here."""
    from recollect.adapters.wiring.models import choose_model

    models = loaded.settings.models
    if not loaded.settings.compaction.enabled:
        return "off (compaction.enabled): a full view is trimmed"
    try:
        model = choose_model(loaded.settings, "summary")
    except (SettingsError, MissingExtra, ModelRefused) as problem:
        return str(problem)
    if model is None:
        return "no model is named (models.provider, models.main): a full view is trimmed"
    where = "the provider's own server" if models.base_url is None else "models.base_url"
    return f"{model.name}, {model.format}, at {where}"


def _facts(loaded: config.LoadedSettings) -> str:
    """Who reads for facts; nobody is asked for it here."""
    from recollect.adapters.wiring.models import choose_model

    try:
        model = choose_model(loaded.settings, "extraction")
    except (SettingsError, MissingExtra, ModelRefused) as problem:
        return str(problem)
    if model is None:
        return "no model is named (models.extraction): only facts that are written by hand"
    return f"{model.name}, within jobs.day_tokens"


def _model_use(loaded: config.LoadedSettings, *, as_json: bool) -> Any:
    """What summaries and facts of this folder's memory took, or of the default space."""
    import asyncio

    from recollect.adapters.wiring.stores import is_stored
    from recollect.cli.memory.looking import ModelUses, model_uses, said_of_uses
    from recollect.cli.memory.looking import uses_as_json as by_purpose
    from recollect.cli.store_options import Place, opened

    settings = loaded.settings
    space = _space(loaded)
    if settings.store.url is None and not is_stored(None, space):
        return None if as_json else "nothing: there is no memory yet"

    async def ask() -> ModelUses:
        place = Place(url=settings.store.url, space=space, settings=settings)
        async with asyncio.timeout(_STORE_SECONDS), opened(place) as store:
            return await model_uses(store)

    try:
        uses = asyncio.run(ask())
    except (RecollectError, TimeoutError) as problem:
        text = str(problem) or f"the store did not answer within {_STORE_SECONDS:g} s"
        return None if as_json else f"not known: {text}"
    return by_purpose(uses) if as_json else said_of_uses(uses)


def _embedders(loaded: config.LoadedSettings) -> str:
    """What `recall.embedder` comes down to on this machine, and why not a better one."""
    from recollect.adapters.wiring.models import choose_embedders

    try:
        return choose_embedders(loaded.settings).said
    except (SettingsError, MissingExtra) as problem:
        return str(problem)


def _table(rows: list[SettingRow], *, full_sources: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0), expand=False)
    table.add_column("", no_wrap=True)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold", min_width=12, max_width=_CLIP_CHARS)
    table.add_column("from", overflow="fold", no_wrap=not full_sources)
    table.add_column("default", overflow="fold", min_width=7, max_width=_CLIP_CHARS)
    table.add_column("OpenClaw", overflow="fold", min_width=8, max_width=_CLIP_CHARS)
    group = ""
    for row in rows:
        top, _, name = row.key.partition(".")
        if name and top != group:
            group = top
            table.add_row()
            table.add_row("", Text(top, style="bold"))
        quiet = "dim" if row.is_default else ""
        table.add_row(
            Text("" if row.is_default else "●", style="yellow"),
            Text(f"  {name}" if name else top, style="" if row.is_default else "cyan"),
            _value_text(row),
            Text(_source_text(row.source, full=full_sources), style=quiet),
            Text("" if row.is_default else _clipped(shown(row.default)), style="yellow"),
            Text("" if row.value == row.openclaw else _clipped(shown(row.openclaw)), style=quiet),
        )
    return table


def _value_text(row: SettingRow) -> Text:
    from rich.text import Text as RichText

    if row.is_default:  # one quiet line; what somebody set may take several
        return RichText(shown(row.value), style="dim", no_wrap=True, overflow="ellipsis")
    return RichText(_clipped(shown(row.value), _LONG_CHARS), style="bold cyan")


def _source_text(source: config.Source, *, full: bool) -> str:
    """The source, or on a narrow screen only its kind; `--json` always has all of it."""
    if full:
        return str(source)
    return Path(source.name).name if source.kind in ("file", "openclaw") else source.kind


def _draw_notices(console: Console, notices: tuple[config.Notice, ...]) -> None:
    """Each notice once; keys with the same to say share a line."""
    from rich.padding import Padding
    from rich.text import Text

    keys_by_message: dict[str, list[str]] = {}
    for notice in notices:
        keys_by_message.setdefault(notice.message, []).append(notice.key)
    for message, keys in keys_by_message.items():
        console.print(Text.assemble(("\n! ", "yellow"), (", ".join(keys), "bold")))
        console.print(Padding(Text(message), (0, 0, 0, 2)))


def _clipped(text: str, at_most_chars: int = _CLIP_CHARS) -> str:
    return text if len(text) <= at_most_chars else text[: at_most_chars - 1].rstrip() + "…"
