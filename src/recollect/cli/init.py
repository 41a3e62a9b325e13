"""`recollect init`: the settings file of a folder, its agent files if asked.

Looks for a model that can be asked: a provider whose key is in the environment, a server of
llama.cpp on this machine. Nothing is sent anywhere but one question to 127.0.0.1, no key is
written down or shown, and a file that is there is never touched.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from recollect.errors import RecollectError, SettingsError
from recollect.system.config.trust import FILE_NAME, ProjectFile, read_project_file, record_trust

_NO_MODEL: Final = """\
# No model is set: Recollect trims a full window and does not summarise it. Name a provider to
# change that:
# [models]
# provider = "{wire}"        # the key from {variable}
# main = "{model}"
# or a server of your own that speaks Chat Completions:
# provider = "openai-chat"
# base_url = "{url}"
# main = "the name of its model"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """A model that can be asked from here."""

    provider: str
    model: str
    base_url: str | None = None
    said: str
    """For people: whose, and where its key comes from."""

    def as_toml(self) -> str:
        """The group of settings that names it; no key is in it."""
        lines = [
            "[models]",
            f"provider = {_quoted(self.provider)}",
            f"main = {_quoted(self.model)}",
        ]
        if self.base_url is not None:
            lines.append(f"base_url = {_quoted(self.base_url)}")
        return "\n".join(lines) + "\n"


def found_choices() -> list[ModelChoice]:
    """What can be asked from here, what costs money first: who set a key means to use it."""
    from recollect.agent.chat.opening import (
        LOCAL_URL,
        PROBE_SECONDS,
        PROVIDERS,
        served_model,
    )

    choices = [
        ModelChoice(
            provider=one.wire,
            model=one.model,
            said=f"{one.title}, {one.model} (key from {one.variable})",
        )
        for one in PROVIDERS.values()
        if os.environ.get(one.variable)
    ]
    served = served_model(LOCAL_URL, seconds=PROBE_SECONDS)
    if served:
        choices.append(
            ModelChoice(
                provider="openai-chat",
                model=served,
                base_url=LOCAL_URL,
                said=f"the server on this machine, {served} ({LOCAL_URL}, no key)",
            )
        )
    return choices


def settings_text(choice: ModelChoice | None) -> str:
    """What a new settings file says."""
    head = (
        "# Settings of Recollect. `recollect doctor` lists all of them and what is in force.\n"
        "# API keys are read from the environment: never write one here.\n\n"
    )
    if choice is not None:
        return head + choice.as_toml()
    from recollect.agent.chat.opening import LOCAL_URL, PROVIDERS

    first = PROVIDERS["anthropic"]
    return head + _NO_MODEL.format(
        wire=first.wire, variable=first.variable, model=first.model, url=LOCAL_URL
    )


@click.command("init")
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(), metavar="[FOLDER]"
)
@click.option("--yes", is_flag=True, help="Ask nothing: use the first model that is found.")
@click.option(
    "--workspace",
    is_flag=True,
    help="Also write the agent's files: AGENTS.md, SOUL.md, TOOLS.md and others.",
)
def init(*, folder: Path, yes: bool, workspace: bool) -> None:
    """Set up a folder: write recollect.toml with a model that can be asked.

    Finds keys in the environment and a server of llama.cpp on this machine. Never overwrites.
    """
    from recollect.adapters.session.workspace import create_missing_files

    settings_file = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecollectError(f"{folder} cannot be made: {error.strerror}") from error
    if os.path.lexists(settings_file):
        click.echo(f"kept     {settings_file} (it is there already)")
    else:
        choices = found_choices()
        choice = _chosen(choices, yes=yes)
        text = settings_text(choice)
        _write_new(settings_file, text)
        if choice is not None:
            _trust_own(folder, text)
        who = "no model named yet" if choice is None else choice.said
        click.echo(f"written  {settings_file}: {who}")
    if workspace:
        created = create_missing_files(folder)
        for name in created.names:
            click.echo(f"written  {folder / name}")
        for note in created.notes:
            click.echo(note, err=True)
        if not created.names and not created.notes:
            click.echo("kept     the workspace's files (all are there already)")
    where = "" if folder == Path() else f"cd {folder} && "
    click.echo(f"Next: `{where}recollect doctor` checks it, `{where}recollect chat` begins.")


def _chosen(choices: list[ModelChoice], *, yes: bool) -> ModelChoice | None:
    """The model to name; None where there is none, or the user wants none."""
    if not choices:
        click.echo(
            "No model was found: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start llama-server on "
            "this machine (port 8080), then name it in recollect.toml and run `recollect trust`.",
            err=True,
        )
        return None
    if yes:
        return choices[0]
    for number, choice in enumerate(choices, 1):
        click.echo(f"  {number}  {choice.said}", err=True)
    click.echo("  0  none yet", err=True)
    wanted = click.prompt(
        "Which model shall be asked", type=click.IntRange(0, len(choices)), default=1, err=True
    )
    return choices[wanted - 1] if wanted else None


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise RecollectError(f"{path} cannot be written: {error.strerror}") from error


def _trust_own(folder: Path, text: str) -> None:
    """Trust the file that was just written by the user's order, unless it is another one by now."""
    found = read_project_file(folder)
    if isinstance(found, ProjectFile) and found.data == text.encode():
        try:
            record_trust(found)
        except SettingsError as problem:
            click.echo(f"{problem}: run `recollect trust` in {folder}", err=True)


def _quoted(text: str) -> str:
    """A text as TOML spells it; JSON's spelling of one is the same."""
    import json

    return json.dumps(text)
