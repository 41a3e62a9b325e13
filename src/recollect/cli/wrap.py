"""`recollect wrap`: start an agent through a gateway of its own."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from recollect.agent.chat.output import harmless, logging_to
from recollect.errors import RecollectError
from recollect.system.agent_folders import project_space
from recollect.system.config import Settings, load_settings
from recollect.system.config.places import user_settings_file
from recollect.system.plain_text import window_from

if TYPE_CHECKING:
    from recollect.hosts.gateway.agents import WrappedAgent
    from recollect.hosts.gateway.upstream import Family, Upstreams

AGENT_NAMES = ("claude", "codex", "opencode", "pi")
CHECKED_SECONDS: Final = 1.0
"""No longer than this an agent's start waits to learn whether its provider is there."""
MOST_HELD: Final = 20
"""Messages that are kept while the agent has the screen."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("agent", type=click.Choice(AGENT_NAMES))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--space",
    metavar="NAME",
    help="Which memory; else that of the project that the current folder belongs to, which is "
    "named by its path. "
    "`recollect space list` lists them.",
)
@click.option(
    "--window",
    metavar="TOKENS",
    help="The model's window, such as 200k; needed only where its name does not tell it.",
)
@click.option(
    "--summaries",
    is_flag=True,
    help="When the window fills, have the agent's own model write a summary, with its key. That "
    "costs tokens: at most jobs.day_tokens a day. Without it nothing is spent; old "
    "messages leave the request, and are recalled when they are asked for.",
)
def wrap(
    agent: str,
    arguments: tuple[str, ...],
    space: str | None,
    window: str | None,
    summaries: bool,  # noqa: FBT001 - a flag of the command
) -> None:
    """Run AGENT with memory: through a gateway that lives as long as it does.

    \b
    recollect wrap claude                 as ever, with this folder's memory

    Nothing has to be configured. The agent's keys pass through and are not kept; where its
    requests go is said where that is not the provider's usual address.
    """
    from recollect.hosts.gateway.agents import AGENTS

    chosen = AGENTS[agent]
    if shutil.which(chosen.program) is None:
        raise RecollectError(f"{chosen.program} is not installed, or not on the PATH")
    given = {
        "gateway.host": "127.0.0.1",
        "gateway.port": 0,
        "gateway.space": space or project_space(str(Path.cwd())),
        "gateway.by_folder": space is None,
        **({"window_tokens": window_from(window)} if window else {}),
        **({"gateway.summaries": "client"} if summaries else {}),
    }
    settings, notice = wrapped_settings(chosen, given)
    code = run_wrapped(chosen, settings, arguments)
    if notice:  # the agent's screen hid the line that was logged before it
        _say(notice)
    sys.exit(code)


def wrapped_settings(agent: WrappedAgent, given: dict[str, Any]) -> tuple[Settings, str]:
    """The settings of an agent's gateway, and what of the project's file they ignore: it goes on
    to where the agent went.

    That is what `gateway.upstream` names; else what the agent's configuration or its environment
    does; else the provider's usual address. Where that is no matter of course, it is said.
    """
    loaded = load_settings(arguments=given)
    taken = dict(given)
    own = agent.upstreams()
    for path in agent.project_files():
        _say(
            f"{path.name} of this folder does not choose the provider here: if you need another "
            f"one, set gateway.upstream in {user_settings_file()}"
        )
    if loaded.settings.recall.scope == "auto":
        # one person's project: what another session of it decided counts, as it does for hooks
        taken["recall.scope"] = "space"
    for family in agent.families:
        key = f"gateway.upstream.{family}"
        url, named_by = getattr(loaded.settings.gateway.upstream, family), ""
        if loaded.sources[key].kind != "default":
            named_by = key
        elif family in own:
            taken[key] = url = own[family].url
            named_by = own[family].named_by
        if named_by and url:
            _say(f"requests go to {_shown(url)}, as {named_by} says")
        elif variable := agent.ignored_variables().get(family):
            _say(
                f"{agent.name} does not read {variable}: requests go to {url}; {key} in "
                "recollect.toml names another"
            )
    return load_settings(arguments=taken).settings, loaded.project_notice


def run_wrapped(agent: WrappedAgent, settings: Settings, arguments: Sequence[str]) -> int:
    """Run an agent through a gateway of its own; its exit code.

    The screen is the agent's while it runs: what there is to say is said before and afterwards.
    """
    from recollect.hosts.gateway.agents import command_line, launched
    from recollect.hosts.gateway.running import BackgroundGateway

    held = HeldMessages()
    gateway = BackgroundGateway(settings, tell=lambda _: None, agent=agent.name)
    trouble = _checked(gateway.gateway.upstreams, agent.families)
    with logging_to(held), gateway as running, launched(agent, running.url) as launch:
        for text in trouble():
            _say(text)
        where = settings.gateway.space
        _say(f"memory of {where} (--space {shlex.quote(where)}); to watch: recollect tail")
        code = run_agent(
            command_line(agent, launch, arguments), {**os.environ, **launch.environment}
        )
    for text in held.texts:
        _say(text)
    unanswered = gateway.gateway.unanswered
    if unanswered:
        why = "; ".join(
            f"{text}, {count} times" if count > 1 else text
            for text, count in unanswered.most_common()
        )
        requests = "1 request" if unanswered.total() == 1 else f"{unanswered.total():,} requests"
        _say(f"{requests} of {agent.name}'s had no answer: {why}")
    return code


def _checked(upstreams: Upstreams, families: Sequence[Family]) -> Callable[[], list[str]]:
    """Begin to look whether providers can be reached; what is found is given in a second."""
    found: dict[Family, str] = {}
    threads = [
        threading.Thread(
            target=lambda one=family: found.update({one: upstreams.check(one)}), daemon=True
        )
        for family in families
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + CHECKED_SECONDS

    def trouble() -> list[str]:
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return [text for family in families if (text := found.get(family))]

    return trouble


class HeldMessages(logging.Handler):
    """What is logged while an agent has the screen, each text once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        if len(self.texts) < MOST_HELD:
            self.texts[record.getMessage()] = None


def _say(text: str) -> None:
    click.echo(f"recollect: {harmless(text)}", err=True)  # names of folders stand in it


def _shown(url: str) -> str:
    """An address without a password, or the token of another gateway, that may stand in it."""
    from recollect.hosts.gateway.access import without_token

    parts = urlsplit(url)
    path = without_token(parts.path)[0] if parts.path else ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path).geturl()


def run_agent(command: list[str], environment: dict[str, str]) -> int:
    """Run the agent in this terminal; signals are its own business, its exit code is ours."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        # the terminal sends them to the agent as well, which has its own way with them
        signal.signal(number, lambda *_: None)
    process = subprocess.Popen(command, env=environment)  # noqa: S603 - what the user named
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGHUP, lambda *_: process.send_signal(signal.SIGHUP))
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        # Ctrl-Z: the shell gets the terminal back, and the agent goes on when we do
        os.kill(os.getpid(), signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
