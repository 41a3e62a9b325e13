"""`recollect chat`: talk to the agent, in a terminal or through a pipe."""

from __future__ import annotations

import io
import sys
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
@click.option("-m", "--message", help="Send this, or a /command, print the reply and exit.")
@click.option("--provider", metavar="NAME", help="anthropic, openai, or a server's URL.")
@click.option("--model", metavar="NAME", help="The model. Default: models.main.")
@click.option("--session", "key", default="main", metavar="KEY", help="Continue this session.")
@click.option("--new", is_flag=True, help="Begin a new session; the one before is kept.")
@click.option("--resume", metavar="ID", help="Continue this earlier session, by id or name.")
@click.option("--plain", is_flag=True, help="Read one message per line, and print plain text.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON.")
@click.option("--window", metavar="TOKENS", help="The model's window, such as 200k.")
@click.option("--space", metavar="NAME", help="Use this memory. Default: the workspace's own.")
@click.option("--store", metavar="URL", help="Use this store. Default: store.url.")
@click.option("--read-only", is_flag=True, help="Let the model only read files.")
@click.option(
    "--bash",
    type=click.Choice(["auto", "ask", "allow", "off"]),
    default="auto",
    show_default=True,
    help="auto: run commands in bubblewrap if it is installed, else ask each time.",
)
@click.option("--network", is_flag=True, help="Give commands in bubblewrap network access.")
def chat(
    *,
    workspace: Path,
    message: str | None,
    provider: str | None,
    model: str | None,
    key: str,
    new: bool,
    resume: str | None,
    plain: bool,
    as_json: bool,
    window: str | None,
    space: str | None,
    store: str | None,
    read_only: bool,
    bash: BashChoice,
    network: bool,
) -> None:
    """Talk to an agent that works in WORKSPACE and remembers. Default: the current folder.

    \b
    recollect chat                        in this folder
    recollect chat -m "what is here?"     once, for scripts
    recollect chat -m /status             share of the window, cost; also /why, /compact, /export
    git log | recollect chat --plain      one message per line
    """
    if new and resume is not None:
        raise click.UsageError("--new begins another session, --resume continues one")
    if store == "":  # an unset variable must not act on another memory
        raise RecollectError("--store: the URL is empty; leave the option out instead")
    window_tokens = None if window is None else window_from(window)
    from recollect.agent.chat.opening import ChatOrder, chosen_settings

    folder = workspace.resolve()
    settings = chosen_settings(
        None, provider=provider, model=model, window_tokens=window_tokens, folder=folder
    )
    order = ChatOrder(
        workspace=folder,
        settings=settings,
        key=key,
        space=space,
        store=store,
        new=new,
        resume=resume,
        read_only=read_only,
        bash=bash,
        network=network,
    )
    raise SystemExit(_talk(order, message, plain=plain, as_json=as_json))


def _talk(order: ChatOrder, message: str | None, *, plain: bool, as_json: bool) -> int:
    """Run the chat; its exit code."""
    import asyncio

    from recollect.agent.chat.plain import given, lines_of, talk_json, talk_plain

    if not (plain or as_json) and message is None and sys.stdin.isatty() and sys.stdout.isatty():
        from recollect.agent.chat.terminal import talk

        return talk(order)

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a byte that is not UTF-8 must not end the chat

    async def run() -> int:
        lines = lines_of(sys.stdin.readline) if message is None else given([message])
        if as_json:
            return await talk_json(order, lines, sys.stdout)
        return await talk_plain(order, lines, sys.stdout, sys.stderr)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return 130
