"""`recollect chat`, `init` and `trust`: Recollect's own agent, and the settings file of a folder.

`init` looks for a model of a provider whose key is in the environment, or of a llama.cpp server on
this machine: it sends one request to 127.0.0.1. `init` writes and shows no key."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recollect.cli.store_options import (
    check_url,
    confirm,
    download_option,
    json_option,
    offer_model,
    print_json,
)
from recollect.errors import RecollectError, SettingsError
from recollect.system.config import trust as project_trust
from recollect.system.config.fields import holds_text
from recollect.system.config.keys import setting_keys
from recollect.system.config.load import parse_file
from recollect.system.config.trust import FILE_NAME, ProjectFile, printable, read_project_file
from recollect.system.plain_text import number_of, window_from
from recollect.system.projects import space_named

if TYPE_CHECKING:
    from recollect.agent.chat.opening import ChatOrder

_HEAD: Final = """\
# Settings of Recollect. `recollect doctor --settings` lists all of them and what is in force.
# API keys are read from the environment: never write one here.

"""
_NO_MODEL: Final = """\
# No model is set: Recollect trims a full window and does not summarize it. Name a provider to
# change that:
# [models]
# provider = "{wire}"        # the key from {variable}
# main = "{model}"
# or a server of your own that speaks Chat Completions:
# provider = "openai-chat"
# base_url = "{url}"
# main = "the name of its model"
"""
# Not measured: both ends of a long value fit two rows of a terminal with 80 columns.
_SHOWN_END_CHARS: Final = 60


@click.command()
@click.argument(
    "workspace", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option(
    "-m", "--message", help="Send TEXT (a message or a /command), print the reply and exit."
)
@click.option(
    "--provider",
    metavar="NAME",
    help="Use this provider: anthropic, openai, or the URL of a server.",
)
@click.option("--model", metavar="NAME", help="Use this model. Default: models.main.")
@click.option("--session", "key", default="main", metavar="KEY", help="Continue this session.")
@click.option(
    "--new", "starts_new", is_flag=True, help="Begin a new session; the previous one is kept."
)
@click.option("--resume", metavar="ID", help="Continue this earlier session, by id or name.")
@click.option("--plain", is_flag=True, help="Read one message per line, and print plain text.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--window", metavar="TOKENS", help="Set the model's window in tokens, such as 200k.")
@click.option("--space", metavar="NAME", help="Use this memory. Default: the workspace's own.")
@click.option("--store", metavar="URL", help="Use this store. Default: store.url.")
@click.option("--read-only", is_flag=True, help="Let the model only read files.")
@click.option(
    "--bash",
    type=click.Choice(["auto", "ask", "allow", "off"]),
    default="auto",
    show_default=True,
    help="Choose how the model's commands run. auto: in bubblewrap (a sandbox) if it is "
    "installed, else as ask. ask: after your yes. allow: without asking. off: not at all.",
)
@click.option(
    "--network", is_flag=True, help="Give the model's commands in bubblewrap network access."
)
@download_option
def chat(
    *,
    workspace: Path,
    message: str | None,
    provider: str | None,
    model: str | None,
    plain: bool,
    as_json: bool,
    window: str | None,
    space: str | None,
    download: bool | None,
    **order_fields: Any,
) -> None:
    """Talk to Recollect's own agent, which works in the folder WORKSPACE and has a memory. Default:
    the current folder.

    \b
    recollect chat                        in this folder
    recollect chat -m "what is here?"     once, for scripts
    recollect chat -m /status             share of the window, cost; also /why, /compact, /export
    git log | recollect chat --plain      one message per line"""
    if order_fields["starts_new"] and order_fields["resume"] is not None:
        raise click.UsageError("pass either --new or --resume, not both")
    check_url(order_fields["store"])
    window_tokens = None if window is None else window_from(window)
    from recollect.agent.chat.opening import ChatOrder, choose_settings

    folder = workspace.resolve()
    settings = choose_settings(
        provider=provider, model=model, window_tokens=window_tokens, folder=folder
    )
    if download is not None or (message is None and not as_json):
        offer_model(settings, download)
    named_space = space and space_named(space)
    order = ChatOrder(workspace=folder, settings=settings, space=named_space, **order_fields)
    raise SystemExit(_talk(order, message, plain=plain, as_json=as_json))


def _talk(order: ChatOrder, message: str | None, *, plain: bool, as_json: bool) -> int:
    import asyncio

    from recollect.agent.chat.plain import lines_from, lines_of, talk_json, talk_plain

    if not (plain or as_json) and message is None and sys.stdin.isatty() and sys.stdout.isatty():
        from recollect.agent.chat.terminal import talk

        return talk(order)

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a byte that is not UTF-8 must not end the chat

    async def run() -> int:
        lines = lines_of(sys.stdin.readline) if message is None else lines_from([message])
        if as_json:
            return await talk_json(order, lines, sys.stdout)
        return await talk_plain(order, lines, sys.stdout, sys.stderr)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return 130


def _usable_models() -> dict[str, dict[str, str]]:
    """Return the settings for each usable model by description, models with a key first."""
    from recollect.agent.chat.opening import LOCAL_URL, PROBE_SECONDS, PROVIDERS, find_served_model

    settings_by_text = {
        f"{provider.title}, {provider.model} (key from {provider.variable})": {
            "provider": str(provider.wire),
            "main": provider.model,
        }
        for provider in PROVIDERS.values()
        if os.environ.get(provider.variable)
    }
    if served_model := find_served_model(LOCAL_URL, seconds=PROBE_SECONDS):
        text = f"the server on this machine, {served_model} ({LOCAL_URL}, no key)"
        settings_by_text[text] = {
            "provider": "openai-chat",
            "main": served_model,
            "base_url": LOCAL_URL,
        }
    return settings_by_text


def _settings_text(settings: dict[str, str] | None) -> str:
    if settings is not None:
        # JSON strings are valid TOML strings
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        return _HEAD + "\n".join(["[models]", *lines, ""])
    from recollect.agent.chat.opening import LOCAL_URL, PROVIDERS

    provider = PROVIDERS["anthropic"]
    return _HEAD + _NO_MODEL.format(
        wire=provider.wire, variable=provider.variable, model=provider.model, url=LOCAL_URL
    )


@click.command("init")
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(), metavar="[FOLDER]"
)
@click.option(
    "--yes", is_flag=True, help="Name the first model that the command finds, without asking."
)
@click.option(
    "--workspace",
    is_flag=True,
    help="Also create the chat agent's files: AGENTS.md, SOUL.md, TOOLS.md and others.",
)
def init(*, folder: Path, yes: bool, workspace: bool) -> None:
    """Create a settings file, recollect.toml, in FOLDER, and name a model in it. Overwrites
    nothing.

    Offers the models whose API key is in the environment, and a llama.cpp server on this machine.
    """
    settings_file = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecollectError(f"{folder} cannot be created: {error.strerror}") from error
    if os.path.lexists(settings_file):
        click.echo(f"kept     {printable(settings_file)} (it exists already)")
    else:
        usable = _usable_models()
        choice = _choose(list(usable), yes=yes)
        text = _settings_text(usable.get(choice))
        try:
            with settings_file.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as error:
            raise RecollectError(f"{settings_file} cannot be written: {error.strerror}") from error
        if choice:
            _trust_own(folder, text)
        click.echo(f"written  {printable(settings_file)}: {choice or 'no model named yet'}")
    if workspace:
        from recollect.adapters.session.workspace import create_missing_files

        created_files = create_missing_files(folder)
        for name in created_files.names:
            click.echo(f"written  {printable(folder / name)}")
        for note in created_files.notes:
            click.echo(note, err=True)
        if not created_files.names and not created_files.notes:
            click.echo("kept     the workspace's files (all exist already)")
    prefix = "" if folder == Path() else f"cd {printable(folder)} && "
    click.echo(f"Next: `{prefix}recollect doctor` to check, `{prefix}recollect chat` to begin.")


def _choose(models: list[str], *, yes: bool) -> str:
    """Ask which model to use. Return the model's description, or an empty string for none."""
    if not models:
        click.echo(
            "No model was found: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start llama-server on "
            "this machine (port 8080), then name it in recollect.toml and run `recollect trust`.",
            err=True,
        )
        return ""
    if yes:
        return models[0]
    for number, description in enumerate(models, 1):
        click.echo(f"  {number}  {description}", err=True)
    click.echo("  0  none yet", err=True)
    numbers = click.IntRange(0, len(models))
    chosen_number = click.prompt(
        "Which model do you want to use", type=numbers, default=1, err=True
    )
    return models[chosen_number - 1] if chosen_number else ""


def _trust_own(folder: Path, text: str) -> None:
    """Trust the file that `init` has just written, unless another program has replaced it."""
    project_file = read_project_file(folder)
    if isinstance(project_file, ProjectFile) and project_file.data == text.encode():
        try:
            project_trust.record_trust(project_file)
        except SettingsError as problem:
            click.echo(f"{problem}: run `recollect trust` in {printable(folder)}", err=True)


@click.command("trust")
@click.argument("file", type=click.Path(path_type=Path), default=Path(FILE_NAME), metavar="[FILE]")
@click.option("--yes", is_flag=True, help="Trust the file as it is now, without asking.")
@click.option("--list", "listing", is_flag=True, help="List the files that you trust.")
@click.option("--revoke", is_flag=True, help="Stop trusting FILE.")
@json_option
def trust(*, file: Path, yes: bool, listing: bool, revoke: bool, as_json: bool) -> None:
    """Review a project's recollect.toml, and allow the settings that need your permission.

    \b
    recollect trust              the file in the current folder
    recollect trust FOLDER       the file in another folder
    recollect trust --list       all files that you trust

    A recollect.toml in a folder may set budgets and windows. Everything else in the file (servers,
    paths, models, stores, redaction and similar) is ignored until you trust the file. FILE must be
    named recollect.toml. The command shows the ignored settings and asks. Settings with a server,
    path or key come first. If the file changes later, you have to trust it again. With --json the
    command shows long values in full, does not ask, and trusts the file only with --yes. Exits 1 if
    the file is not trusted."""
    if listing:
        _list_trusted(as_json=as_json)
        return
    folder = _folder_of(file)
    if revoke:
        _revoke(folder.resolve() / FILE_NAME, as_json=as_json)
        return
    project_file = _find(folder)
    withheld = _withheld(project_file)
    trusted = project_trust.is_trusted(project_file)
    if withheld and not trusted:
        if not as_json:
            count = number_of(len(withheld), "setting")
            click.echo(f"{printable(project_file.path)} has {count} to review:")
            for key, value in withheld.items():
                click.echo(f"  {_setting_line(key, value)}")
        trusted = yes or (
            not as_json
            and confirm("Trust this file?", "the file would be trusted as it is", as_json=False)
        )
        if trusted:
            project_trust.record_trust(project_file)
    if as_json:
        settings = [{"key": key, "value": value} for key, value in withheld.items()]
        value = {
            "file": str(project_file.path),
            "trusted": trusted or not withheld,
            "settings": settings,
        }
        print_json(value)
    elif not withheld:
        click.echo(f"{printable(project_file.path)} sets nothing that needs your trust.")
    elif trusted:
        click.echo(f"{printable(project_file.path)} is trusted until it changes.")
    else:
        click.echo("Not trusted: these settings stay ignored.")
    if withheld and not trusted:
        raise SystemExit(1)


def _withheld(file: ProjectFile) -> dict[str, Any]:
    """Return the settings of a project's file that only the user may decide, texts first."""
    withheld = project_trust.withheld_values(parse_file(file.data, file.path))
    keys = sorted(withheld, key=lambda key: not holds_text(setting_keys()[key].hint))
    return {key: withheld[key].value for key in keys}


def _setting_line(key: str, value: Any) -> str:
    """Format a setting in ASCII, so that no character can hide another, reverse the line or move
    the cursor. A long value, which would push other lines off the screen, is shortened."""
    text = json.dumps(value)
    if len(text) <= 2 * _SHOWN_END_CHARS:
        return f"{key} = {text}"
    items = f"   ({len(value)} items)" if isinstance(value, tuple) and value else ""
    return f"{key} = {text[:_SHOWN_END_CHARS]} ... {text[-_SHOWN_END_CHARS:]}{items}"


def _folder_of(file: Path) -> Path:
    if file.name == FILE_NAME:
        return file.parent
    if file.is_dir():
        return file
    raise RecollectError(
        f"{printable(file)} must be a {FILE_NAME} or its folder; name any other settings file in "
        "RECOLLECT_CONFIG, which trusts it"
    )


def _find(folder: Path) -> ProjectFile:
    project_file = read_project_file(folder)
    if isinstance(project_file, project_trust.UnreadFile):
        raise RecollectError(
            f"{project_file}; replace it with a plain file, or name it in RECOLLECT_CONFIG"
        )
    if project_file is None:
        raise RecollectError(
            f"{printable(folder.resolve())} has no {FILE_NAME}: run this in a project's folder, "
            "or name the file"
        )
    return project_file


def _revoke(path: Path, *, as_json: bool) -> None:
    was_trusted = project_trust.revoke_trust(path)
    if as_json:
        print_json({"file": str(path), "revoked": was_trusted})
    else:
        click.echo(
            f"{printable(path)} {'is' if was_trusted else 'was'} not trusted"
            f"{' any more' * was_trusted}."
        )
    if not was_trusted:
        raise SystemExit(1)


def _list_trusted(*, as_json: bool) -> None:
    rows = []
    for record in project_trust.trust_records():
        project_file, state = read_project_file(record.path.parent), "missing"
        if isinstance(project_file, ProjectFile):
            state = "trusted" if project_trust.is_trusted(project_file) else "changed"
        rows.append((record.path, state))
    if as_json:
        print_json({"files": [{"file": str(path), "state": state} for path, state in rows]})
        return
    for path, state in rows:
        click.echo(f"{state:8} {printable(path)}")
    if not rows:
        click.echo("You trust no project's settings file.", err=True)
