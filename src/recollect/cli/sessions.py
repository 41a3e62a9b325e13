"""The chat's commands on a session, for a shell: the same nouns and verbs, and the same code.

`sessions` reads transcripts alone. `status`, `why` and `compact` open the agent, as a chat would,
and end it again. Looking at a session writes nothing into it. If a chat has the session open, ask
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recollect.agent.chat.output import harmless
from recollect.cli.chat import chat_order
from recollect.cli.store_options import (
    Place,
    json_option,
    meant_space,
    print_json,
    with_store,
)
from recollect.errors import RecollectError, TranscriptLocked
from recollect.system import config
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.agent.commands import CommandName
    from recollect.agent.events import Told
    from recollect.agent.loop import Agent
    from recollect.core.ports import Store
    from recollect.core.values.compaction import CompactionResult
    from recollect.hosts.inspect.sessions import SessionLine

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = {
    "workspace": click.option(
        "--workspace",
        default=".",
        show_default=True,
        metavar="DIR",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Use the chat sessions of this folder.",
    ),
    "space": click.option(
        "--space", metavar="NAME", help="Use this memory. Default: the folder's own."
    ),
    "session": click.option(
        "--session",
        "wanted",
        default="main",
        show_default=True,
        metavar="WHICH",
        help="Use this chat session: its key, its id or an id prefix, or its name.",
    ),
}


def session_options(command: Command) -> Command:
    """Add what says which session is meant, and `--json`."""
    for option in (json_option, *reversed(_OPTIONS.values())):
        command = option(command)
    return command


def agent_options(command: Command) -> Command:
    """The same, and who would be asked: what stands in the window depends on the model."""
    options = (
        click.option("--store", metavar="URL", help="Else the settings' store."),
        click.option("--provider", metavar="NAME", help="anthropic, openai, or a server's URL."),
        click.option("--model", metavar="NAME", help="The model; else the session's own."),
        click.option("--window", metavar="TOKENS", help="The model's window, such as 200k."),
        click.option("--config", type=click.Path(path_type=Path), help="A settings file."),
    )
    for option in reversed(options):
        command = option(command)
    return session_options(command)


# Transcripts alone


@click.command("sessions")
@_OPTIONS["workspace"]
@_OPTIONS["space"]
@json_option
def sessions(*, workspace: Path, space: str | None, as_json: bool) -> None:
    """List the chat sessions of a folder, the one that changed last first.

    Sessions of other agents (hooks, gateway) are listed by `recollect memory sessions`.
    """
    from recollect.hosts.inspect.sessions import sessions_of
    from recollect.hosts.inspect.text import sessions_text

    found = sessions_of(space or str(workspace.resolve()))
    if as_json:
        print_json({"sessions": [line.to_dict() for line in found]})
        return
    if not found:
        folder = workspace.resolve()
        click.echo(f"recollect: no chat session yet. {_elsewhere(folder, space, '')}", err=True)
    for text in sessions_text(found):
        click.echo(text)


def _meant(folder: Path, space: str | None, wanted: str) -> tuple[str, SessionLine]:
    """The space, and the session in it that is meant."""
    from recollect.hosts.inspect.sessions import session_meant, sessions_called, sessions_of

    place = space or str(folder)
    lines = sessions_of(place)
    if not sessions_called(lines, wanted):
        raise RecollectError(
            f"no chat session is called {plain_line(wanted)!r} in this folder. "
            + (_elsewhere(folder, space, wanted) if not lines or wanted != "main" else _LISTED)
        )
    return place, session_meant(lines, wanted)


_LISTED = "`recollect sessions` lists its chat sessions"


def _elsewhere(folder: Path, space: str | None, wanted: str) -> str:
    """What to type, since no chat session is meant: for the sessions of other agents that the
    folder's memory holds, else to begin a chat."""
    from recollect.core.values.recall import FILE_SESSIONS

    async def names(store: Store, place: Place) -> list[str]:
        del place
        return [one.session for one in await store.sessions()]

    try:
        settings = config.load_settings().settings
        where = space or meant_space(folder, None, settings)
        stored = with_store(None, where, names)
    except RecollectError:  # there is no memory, or it is down
        stored = []
    own = [name for name in stored if not name.startswith(FILE_SESSIONS)]
    if not own:
        return f"{_LISTED}; `recollect chat` begins one"
    several = "1 session" if len(own) == 1 else f"{len(own):,} sessions"
    named = wanted if wanted in own else "SESSION"
    return (
        f"The memory of this folder holds {several} of other agents, which this command does not "
        f"read: `recollect memory sessions` lists them, `recollect replay {quote(named)} --list` "
        "shows their requests, `recollect explain --live` and `recollect tail` the running ones"
    )


def _in_use(line: SessionLine) -> RecollectError:
    return RecollectError(f"a chat has session {line.session_id} open; ask there, or end it first")


# With the agent


@click.command("status")
@click.option("--detail", is_flag=True, help="Show each file, tool and block of the request.")
@agent_options
def status(*, detail: bool, **given: Any) -> None:
    """Show a chat session's share of the window, tokens by kind, compactions, cost and cache share.

    For sessions of other agents: `recollect replay` and `recollect explain`.
    """
    _answer("status", "detail" if detail else "", given)


@click.command("why")
@click.argument("message", nargs=-1, metavar="[NUMBER|WORDS]")
@agent_options
def why(*, message: tuple[str, ...], **given: Any) -> None:
    """Show what becomes of a message of a chat session's next request, and why.

    For sessions of other agents: `recollect explain`.
    """
    _answer("why", " ".join(message), given)


@click.command("compact")
@click.argument("instructions", nargs=-1, metavar="[INSTRUCTIONS]")
@agent_options
def compact(*, instructions: tuple[str, ...], **given: Any) -> None:
    """Replace a chat session's past by a summary, now; `recollect undo` takes it back."""
    from recollect.agent.commands import compaction_text
    from recollect.agent.events import Compacted

    async def work(agent: Agent) -> tuple[str, CompactionResult]:
        events = [event async for event in agent.run(f"/compact {' '.join(instructions)}".strip())]
        (made,) = (event.result for event in events if isinstance(event, Compacted))
        return agent.conversation.session_id, made

    session_id, result = _with_agent(given, work)
    if given["as_json"]:
        print_json(result.to_dict())
    else:
        space = given["space"] or str(given["workspace"].resolve())
        undo = f"`recollect undo {session_id} --space {quote(space)}`"
        click.echo(harmless(compaction_text(result, undo=undo)))
    if not result.ok:
        raise SystemExit(1)


def _answer(command: CommandName, argument: str, given: Mapping[str, Any]) -> None:
    async def work(agent: Agent) -> Told:
        from recollect.agent.commands import Command

        return await agent.answer_command(Command(name=command, argument=argument))

    told = _with_agent(given, work)
    if given["as_json"]:
        print_json(told.data)
    else:
        click.echo(harmless(told.text))


def _with_agent(given: Mapping[str, Any], work: Callable[[Agent], Awaitable[T]]) -> T:
    """Do something with the agent of the session that the options name."""
    workspace, space = given["workspace"].resolve(), given["space"]
    _, line = _meant(workspace, space, given["wanted"])
    if not line.key:
        raise RecollectError(
            f"its key has gone on without session {line.session_id}: "
            f"`recollect chat --resume {line.session_id}` goes on with it"
        )
    key = given["wanted"] if given["wanted"] in line.keys else line.key
    chosen = {name: given[name] for name in ("store", "provider", "model", "window", "config")}
    order = chat_order(workspace, key=key, space=space, **chosen)

    async def run() -> T:
        from recollect.agent.chat.opening import opened_agent

        async with opened_agent(replace(order, looking=True)) as agent:
            return await work(agent)

    try:
        return asyncio.run(run())
    except TranscriptLocked as error:
        raise _in_use(line) from error
