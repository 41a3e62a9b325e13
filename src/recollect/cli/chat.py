"""`recollect chat`: talk to the agent, in a terminal or through a pipe."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.errors import RecollectError
from recollect.system.plain_text import window_from

if TYPE_CHECKING:
    from recollect.agent.chat.opening import BashChoice, ChatOrder


@click.command()
@click.argument(
    "workspace", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option("-m", "--message", help="Say this once, print the reply and end.")
@click.option("--provider", metavar="NAME", help="anthropic, openai, or a server's URL.")
@click.option("--model", metavar="NAME", help="The model; else models.main.")
@click.option("--session", "key", default="main", metavar="KEY", help="Which session goes on.")
@click.option("--new", is_flag=True, help="Begin a new session; the one before is kept.")
@click.option("--name", help="Call the session so.")
@click.option("--resume", metavar="ID", help="Go on with this earlier session; also by name.")
@click.option("--plain", is_flag=True, help="No terminal: a message a line, replies as text.")
@click.option("--json", "as_json", is_flag=True, help="Every event as a line of JSON.")
@click.option("--window", metavar="TOKENS", help="The model's window, such as 200k.")
@click.option("--space", metavar="NAME", help="Which memory; else the workspace's own.")
@click.option("--store", metavar="URL", help="A file or postgresql://…; else the settings' store.")
@click.option("--read-only", is_flag=True, help="The model may only read files.")
@click.option(
    "--bash",
    type=click.Choice(["auto", "ask", "allow", "off"]),
    default="auto",
    show_default=True,
    help="auto: in bubblewrap where it is here, else you are asked each time.",
)
@click.option("--network", is_flag=True, help="Commands in bubblewrap may reach the network.")
@click.option("--config", type=click.Path(path_type=Path), help="A settings file.")
def chat(
    workspace: Path,
    message: str | None,
    provider: str | None,
    model: str | None,
    key: str,
    new: bool,  # noqa: FBT001 - flags of the command
    name: str | None,
    resume: str | None,
    plain: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
    window: str | None,
    space: str | None,
    store: str | None,
    read_only: bool,  # noqa: FBT001
    bash: BashChoice,
    network: bool,  # noqa: FBT001
    config: Path | None,
) -> None:
    """Talk to an agent that works in WORKSPACE and remembers.

    \b
    recollect chat                        in this folder
    recollect chat -m "what is here?"     once, for scripts
    git log | recollect chat --plain      a message a line
    """
    folder = workspace.resolve()
    if new and resume is not None:
        raise click.UsageError("--new begins another session, --resume goes on with one")
    order = replace(
        chat_order(
            folder,
            key=key,
            space=space,
            store=store,
            provider=provider,
            model=model,
            window=window,
            config=config,
        ),
        new=new,
        resume=resume,
        name=name,
        read_only=read_only,
        bash=bash,
        network=network,
    )
    raise SystemExit(_talk(order, message, plain=plain, as_json=as_json))


def chat_order(
    folder: Path,
    *,
    key: str,
    space: str | None,
    store: str | None,
    provider: str | None,
    model: str | None,
    window: str | None,
    config: Path | None,
) -> ChatOrder:
    """A chat by the options that say which session is meant and who is asked."""
    if store == "":  # an unset variable must not act on another memory
        raise RecollectError("--store: the URL is empty; leave the option out instead")
    window_tokens = None if window is None else window_from(window)
    from recollect.agent.chat.opening import ChatOrder, chosen_settings

    settings = chosen_settings(
        config, provider=provider, model=model, window_tokens=window_tokens, folder=folder
    )
    return ChatOrder(
        workspace=folder,
        settings=settings,
        config=config,
        key=key,
        space=space,
        store=store,
        model=model,
    )


def _talk(order: ChatOrder, message: str | None, *, plain: bool, as_json: bool) -> int:
    """Run the chat; its exit code."""
    import asyncio

    from recollect.agent.chat.plain import given, lines_of, talk_json, talk_plain

    if not (plain or as_json) and message is None and sys.stdin.isatty() and sys.stdout.isatty():
        from recollect.agent.chat.terminal import talk

        return talk(order)

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # one byte that is no UTF-8 must not end the talk

    async def run() -> int:
        lines = lines_of(sys.stdin.readline) if message is None else given([message])
        if as_json:
            return await talk_json(order, lines, sys.stdout)
        return await talk_plain(order, lines, sys.stdout, sys.stderr)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return 130
