"""`recollect doctor`: checks the installation, and shows the value and the source of every setting.

`doctor` changes nothing and sends no key. `doctor` only tests a connection to the provider."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from recollect.cli.store_options import (
    Memory,
    ShownProgress,
    choose_space,
    end_daemon,
    json_option,
    print_json,
)
from recollect.errors import (
    EmbedderError,
    MissingExtra,
    ModelRefused,
    RecollectError,
    SettingsError,
)
from recollect.hosts.inspect.checks import Check, check_machine
from recollect.system import config
from recollect.system.config.fields import setting_text
from recollect.system.config.trust import read_project_file
from recollect.system.places import models_folders, user_settings_file
from recollect.system.plain_text import number_of, size_text
from recollect.system.telemetry import logging_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recollect.system.config import LoadedSettings, Settings

_SIGNS: Final = {"ok": ("✓", "green"), "note": ("-", "yellow"), "broken": ("✗", "red")}
# Not measured: a person waits for these checks, and a healthy store or server answers sooner.
_STORE_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 3.0
_PORTS: Final = {"http": 80, "https": 443}
_OWN_HOSTS: Final = {
    "anthropic": "https://api.anthropic.com",
    "openai-chat": "https://api.openai.com",
    "openai-responses": "https://api.openai.com",
}


_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.command("doctor")
@click.option("--config", "file", type=_FILE, help="Read this file instead of recollect.toml.")
@click.option("--openclaw", type=_FILE, help="Also read the settings of this openclaw.json.")
@click.option("--settings", "with_settings", is_flag=True, help="Also print every setting.")
@json_option
def doctor(*, file: Path | None, openclaw: Path | None, with_settings: bool, as_json: bool) -> None:
    """Check the data folder, hooks, store, embedder, provider and permissions. Changes nothing.

    Lists problems and the fix for each. Exits 1 if something does not work. --settings also prints
    every setting with its value and the source of the value. ● marks settings that differ from
    their default."""
    try:
        with logging_to(logging.NullHandler()):  # the checks print what would be logged
            loaded_settings = config.load_settings(file=file, openclaw=openclaw)
    except SettingsError as problem:
        click.echo(f"recollect doctor: {problem}", err=True)
        raise SystemExit(2) from None
    settings = loaded_settings.settings
    checks = [*check_machine(loaded_settings), *_check_hooks()]
    checks += [_check_store(settings), _check_provider(settings)]
    if as_json:
        keys, notices = config.setting_keys(), loaded_settings.notices
        print_json(
            {
                "checks": [asdict(check) for check in checks],
                "preset": settings.preset,
                "settings": {key: _setting_json(loaded_settings, key) for key in keys},
                "notices": [{"key": notice.key, "message": notice.message} for notice in notices],
            }
        )
    else:
        for check in checks:
            sign, colour = _SIGNS[check.state]
            click.echo(f"{click.style(sign, fg=colour)} {check.name}: {check.said}")
            if check.todo:
                click.echo(f"  → {check.todo}")
        if with_settings:
            _print_settings(loaded_settings)
    if any(check.state == "broken" for check in checks):
        raise SystemExit(1)


def _setting_json(loaded_settings: LoadedSettings, path: str) -> dict[str, Any]:
    key, source = config.setting_keys()[path], loaded_settings.sources[path]
    value = _presentable(path, config.value_of(loaded_settings.settings, path))
    return {
        "value": value,
        "source": str(source),
        "source_kind": source.kind,
        "default": key.default,
        "is_default": bool(value == key.default),
    }


def _print_settings(loaded_settings: LoadedSettings) -> None:
    from recollect.hosts.hooks.memory import BLOCK_TOKENS

    changed = 0
    click.echo()
    for path, key in config.setting_keys().items():
        value = _presentable(path, config.value_of(loaded_settings.settings, path))
        if value == key.default:
            click.echo(f"  {path} = {setting_text(value)}")
            continue
        changed += 1
        note = f"{loaded_settings.sources[path]}; default {setting_text(key.default)}"
        click.echo(f"● {path} = {setting_text(value)}   ({note})")
    preset = loaded_settings.settings.preset
    click.echo(f'\n{len(config.setting_keys())} settings, {changed} changed; preset "{preset}"')
    click.echo(
        "Hooks always use recall.sparing = true, recall.standing_tokens = 0 and a "
        f"recall.hard_cap_tokens of at most {BLOCK_TOKENS}."
    )
    click.echo("Hooks always use recall.sparing = true and recall.standing_tokens = 0.")
    for notice in loaded_settings.notices:
        click.echo(f"! {notice.key}: {notice.message}")


def _presentable(path: str, value: Any) -> Any:
    """Remove passwords from a setting's value, because people paste it into bug reports."""
    if path not in ("store.url", "models.base_url") or not isinstance(value, str):
        return value
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:…@", re.sub(r"(password=)[^&\s]*", r"\1…", value))


def _check_hooks() -> Iterator[Check]:
    from recollect.hosts.hooks.install import find_hooks

    try:
        found = find_hooks()
    except RecollectError as problem:
        yield Check("hooks", "note", str(problem), "correct that file")
        return
    if not found:
        yield Check("hooks", "ok", "not installed; `recollect install claude-code` or `codex` does")
    for path, program, arguments in found:
        if shutil.which(program):
            yield Check("hooks", "ok", f"{path} runs {program}")
        else:
            text = f"{path} runs {program}, which does not exist: nothing is stored"
            yield Check("hooks", "broken", text, f"recollect install {arguments}")


def _check_store(settings: Settings) -> Check:
    from recollect.adapters.wiring.secrets import shows_secret
    from recollect.adapters.wiring.stores import is_stored
    from recollect.cli.upkeep import spool_problems

    problems: list[str] = []

    async def count_sessions() -> int | None:
        async with asyncio.timeout(_STORE_SECONDS):
            space = await choose_space(Path.cwd(), None, settings)
            if settings.store.url is None and not is_stored(None, space):
                return None
            memory = Memory(named_space=space, url=settings.store.url)
            memory.space, memory.settings = space, settings
            async with memory.open() as store, memory.open_spool() as spool:
                await shows_secret(store, memory.url)
                problems.extend(spool_problems(await spool.state()))
                return len(await store.sessions())

    try:
        count = asyncio.run(count_sessions())
    except TimeoutError:
        todo = "check whether its server runs, or which process holds the file"
        text = f"the store did not answer within {_STORE_SECONDS:g} s"
        return Check("store", "broken", text, todo)
    except RecollectError as problem:
        todo = "fix store.url, or run `recollect memory check`"
        return Check("store", "broken", str(problem), todo)
    if count is None:
        return Check("store", "ok", "nothing is stored yet; a file will be created")
    if problems:
        return Check("store", "broken", "; ".join(problems), "run `recollect memory check`")
    return Check("store", "ok", f"it answers: {number_of(count, 'session')}")


def _check_provider(settings: Settings) -> Check:
    from recollect.adapters.wiring.models import choose_model

    models = settings.models
    if models.provider is None and models.main is None:
        text = (
            "no model is named: Recollect trims a full window without a summary, and `recollect "
            "chat` does not work"
        )
        return Check("provider", "note", text, _name_a_model())
    try:
        choose_model(settings, "main")
    except (SettingsError, MissingExtra, ModelRefused) as problem:
        todo = "set the value that it names, or run `recollect init` in a new folder"
        return Check("provider", "broken", str(problem), todo)
    assert models.provider is not None
    address = urlsplit(models.base_url or _OWN_HOSTS[models.provider])
    host, port = address.hostname or "", address.port or _PORTS.get(address.scheme, 443)
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as problem:
        text = f"{host}:{port} accepts no connection: {problem.strerror or problem}"
        todo = "start that server, or check the network, a proxy or models.base_url"
        return Check("provider", "broken", text, todo)
    model = models.main or models.summary or "no model"
    server_text = f"{host}:{port} accepts connections (nothing else was tested)"
    return Check("provider", "ok", f"{model}, {models.provider}; {server_text}")


def _name_a_model() -> str:
    if read_project_file(Path()) is None:
        if os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("OPENAI_API_KEY"):
            return "run `recollect init`"
        return "set ANTHROPIC_API_KEY or OPENAI_API_KEY, then run `recollect init`"
    return (  # the project's file may come from another person
        f"name one in {user_settings_file()} ([models] with provider and main), or set "
        "RECOLLECT_MODELS__PROVIDER and RECOLLECT_MODELS__MAIN"
    )


@click.group()
def models() -> None:
    """List and download embedding models."""


@models.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the installed models, models that you can download, and the model that `auto` uses."""
    from recollect.adapters.embedders.download import KNOWN_MODELS
    from recollect.adapters.embedders.onnx import find_models
    from recollect.adapters.wiring.models import choose

    folders = models_folders()
    bytes_by_path = {
        path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        for path in find_models(folders)
    }
    names = {path.name for path in bytes_by_path}
    choice = choose("auto", models=folders)
    if as_json:
        fields = ("name", "repository", "megabytes", "languages", "license")
        known_models = [
            {**{name: getattr(model, name) for name in fields}, "installed": model.name in names}
            for model in KNOWN_MODELS.values()
        ]
        used = [embedder.name for embedder in choice.used]
        print_json(
            {
                "folders": [str(folder) for folder in folders],
                "installed": [
                    {"name": path.name, "folder": str(path), "bytes": size}
                    for path, size in bytes_by_path.items()
                ],
                "known": known_models,
                "auto": {"embedders": used, "said": choice.said},
            }
        )
        return
    click.echo("installed")
    for path, size in bytes_by_path.items():
        click.echo(f"  {path.name}  {size_text(size)}  {path}")
    if not bytes_by_path:
        click.echo(f"  none in {' or '.join(map(str, folders))}")
    click.echo("can be downloaded")
    for model in KNOWN_MODELS.values():
        if model.name not in names:
            details = f"{model.megabytes} MB  {model.languages}  {model.license}"
            click.echo(f"  {model.name}  {details}")
    click.echo(f"auto uses {choice.said}")


@models.command("download")
@click.argument("name")
@click.option(
    "--from",
    "repository",
    metavar="OWNER/NAME[@REVISION]",
    help="Download from this repository of the Hugging Face hub.",
)
@click.option(
    "--again",
    "download_again",
    is_flag=True,
    help="Download again, and replace the installed model.",
)
@json_option
def download_(*, name: str, repository: str | None, download_again: bool, as_json: bool) -> None:
    """Download the model NAME and verify each of its files.

    If a download was interrupted, repeat the command, which continues it. The source is
    recall.model_source, or else the Hugging Face hub."""
    from recollect.adapters.embedders.download import download, hub_model

    if repository and repository.partition("@")[0].count("/") != 1:
        raise EmbedderError("--from takes OWNER/NAME of the hub, optionally with @REVISION")
    model = hub_model(name, repository)
    source, place = config.load_settings().settings.recall.model_source, models_folders()[0]
    with ShownProgress(amount=size_text) as progress:
        result = download(
            model, place, source=source, replaces=download_again, progress=progress.show
        )
    if not result.was_there:
        end_daemon()
    if as_json:
        files, folder = dict(result.files), str(result.folder)
        value = {"name": result.name, "folder": folder, "bytes": result.size, "files": files}
        print_json({**value, "was_there": result.was_there})
        return
    outcome = "was there already" if result.was_there else "downloaded"
    click.echo(f"{result.name} {outcome} and verified: {size_text(result.size)} in {result.folder}")
