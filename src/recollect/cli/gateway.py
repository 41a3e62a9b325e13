"""`recollect gateway`, `wrap` and `tail`: memory for agents that let you set a base URL."""

from __future__ import annotations

import http.client
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from recollect.cli.store_options import download_option, offer_model
from recollect.errors import RecollectError
from recollect.hosts import require_extra
from recollect.system.config import Settings, load_settings
from recollect.system.plain_text import harmless, number_of
from recollect.system.projects import offer_memory, project_space, shown_space, space_named
from recollect.system.telemetry import logging_to

if TYPE_CHECKING:
    from recollect.hosts.gateway.access import RunningGateway
    from recollect.hosts.gateway.agent_routes import Routes
    from recollect.hosts.gateway.agents import WrappedAgent

AGENT_NAMES = ("claude", "codex", "opencode", "pi")
MAX_DELAYED: Final = 20
"""Maximum number of log messages to print after the agent has released the screen."""
HEAD = "time      session            status   came →   sent  cached    out  cost $   delay   first"
# The width of the column `session` in HEAD.
_SESSION_CELLS = 16
_SUMMED = ("tokens_came", "tokens_sent", "usage", "dollars")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Listen on this port; 0 picks a free one. Default: gateway.port [8788].",
)
def gateway(*, port: int | None) -> None:
    """Run a gateway: any agent that uses its URL as the base URL gets a memory.

    \b
    recollect gateway     runs until Ctrl-C, and prints the base URL with its token
    recollect tail        shows its requests

    Requests to the Messages, Chat Completions and Responses APIs get memory. All other requests
    pass through unchanged. To try Recollect with one agent, `recollect wrap claude` is enough."""
    require_extra("gateway")
    from recollect.hosts.gateway import access
    from recollect.hosts.gateway.running import listening_socket, server_of
    from recollect.hosts.gateway.server import Gateway
    from recollect.system.loopback import address_of

    settings = load_settings(arguments={} if port is None else {"gateway.port": port}).settings
    token = access.gateway_token()
    gateway_app = Gateway(settings, token=token, notify=_report)
    server = server_of(gateway_app)
    server_socket = listening_socket(settings)
    address = address_of(server_socket)
    base = access.with_token(address, token if sys.stderr.isatty() else "TOKEN")
    click.echo(f"Recollect listens on {address}. Every request needs its token.", err=True)
    click.echo(f"  Claude Code: ANTHROPIC_BASE_URL={base} claude", err=True)
    if not sys.stderr.isatty():  # a log must not contain the token
        click.echo(f"  TOKEN is the content of {access.gateway_token_file()}", err=True)
    click.echo("  Watch it: recollect tail", err=True)
    click.echo(f"  Inspect it: {gateway_app.inspector.link(address)}", err=True)
    project = project_space(str(Path.cwd()), keep=False)
    running = access.RunningGateway(address=address, token=token, project=project)
    # After the server has shut down, it raises the signal again. SIGTERM then acts like SIGINT.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), access.announce(running):
        server.run(sockets=[server_socket])


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("agent", type=click.Choice(AGENT_NAMES))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--space", metavar="NAME", help="Use this memory. Default: that of the current project."
)
@click.option(
    "--summaries",
    is_flag=True,
    help="Let the agent's own model write a summary when the window fills, with the agent's key."
    " Uses at most jobs.day_tokens per day. Default: Recollect leaves old messages out of "
    "the request, and recalls them when they are needed.",
)
@download_option
def wrap(
    *,
    agent: str,
    arguments: tuple[str, ...],
    space: str | None,
    summaries: bool,
    download: bool | None,
) -> None:
    """Run AGENT with memory. AGENT's requests pass through a gateway that stops when AGENT exits.

    \b
    recollect wrap claude                 with this folder's memory
    recollect wrap claude -- --continue   arguments after -- go to the agent

    Needs no configuration. The gateway passes the agent's API keys to the provider and does not
    store them. Prints the provider's address unless it is the usual one."""
    from recollect.hosts.gateway.agents import AGENTS

    wrapped_agent = AGENTS[agent]
    if shutil.which(agent) is None:
        raise RecollectError(f"{agent} is not installed, or not on the PATH")
    arguments_of_gateway: dict[str, Any] = {
        "gateway.host": "127.0.0.1",
        "gateway.port": 0,
        "gateway.space": space_named(space) if space else project_space(str(Path.cwd())),
        "gateway.by_folder": space is None,
    }
    if summaries:
        arguments_of_gateway["gateway.summaries"] = "client"
    if space is None and (offer := offer_memory(str(Path.cwd()))):
        _report(offer.removeprefix("Recollect: "))
    _report_hooks(agent)
    settings, notice, routes = settings_for_wrap(wrapped_agent, arguments_of_gateway, arguments)
    offer_model(settings, download)
    code = run_wrapped(wrapped_agent, settings, arguments, routes)
    if notice:  # the agent's screen hid the line that was logged before
        _report(notice)
    sys.exit(code)


def _report_hooks(agent: str) -> None:
    """Warn if the agent also has hooks, which store messages without what `wrap` sees in them."""
    from recollect.hosts.hooks.install import find_hooks

    with suppress(RecollectError):  # `doctor` reports it
        for path, _, arguments in find_hooks():
            if arguments.startswith(agent):
                _report(
                    f"{agent} also has Recollect's hooks ({path}), so messages are stored twice. "
                    f"Use only one of them: `recollect uninstall {arguments}` removes the hooks"
                )


def settings_for_wrap(
    agent: WrappedAgent, arguments: dict[str, Any], agent_arguments: Sequence[str] = ()
) -> tuple[Settings, str, Routes]:
    """Return the settings of an agent's gateway, the ignored part of the project's file, and the
    providers to redirect. The gateway sends requests to the first URL that exists:
    `gateway.upstream`, the URL in the agent's configuration or environment, or the provider's usual
    URL. The command prints an unusual URL."""
    loaded_settings = load_settings(arguments=arguments)
    sources = loaded_settings.sources
    set_families = {name for name in agent.families if sources[_key(name)].kind != "default"}
    routes = agent.read_routes(agent_arguments, set_families)
    agent_upstreams = agent.upstreams(routes)
    upstreams: dict[str, Any] = {}
    for line in routes.direct:
        _report(line)
    for family in routes.redirected:
        key = _key(family)
        url, named_by = getattr(loaded_settings.settings.gateway.upstream, family), ""
        if family in set_families:
            named_by = key
        elif family in agent_upstreams:
            upstreams[key] = url = agent_upstreams[family].url
            named_by = agent_upstreams[family].named_by
        if named_by and url:
            _report(f"requests are sent to {_without_secrets(url)}, as set by {named_by}")
        elif variable := agent.find_ignored_variables().get(family):
            _report(
                f"{agent.name} does not read {variable}: requests go to {url}. "
                f"To change it, set {key}"
            )
    settings = load_settings(arguments={**arguments, **upstreams}).settings
    # The project belongs to one person: recall decisions of its other sessions, as hooks do.
    return settings.across_sessions(), loaded_settings.project_notice, routes


def _key(family: str) -> str:
    return f"gateway.upstream.{family}"


def run_wrapped(
    agent: WrappedAgent, settings: Settings, arguments: Sequence[str], routes: Routes
) -> int:
    """Run an agent through its own gateway, and return the exit code. Messages are printed before
    and after the run, because the agent uses the screen meanwhile."""
    require_extra("gateway")
    from recollect.hosts.gateway.agents import prepare_launch
    from recollect.hosts.gateway.running import BackgroundGateway

    messages = DelayedMessages()
    gateway = BackgroundGateway(settings, notify=messages.add, agent=agent.name)
    with (
        logging_to(messages),
        gateway as running,
        prepare_launch(agent, running.url, routes) as launch,
    ):
        space = settings.gateway.space
        name = shown_space(space)
        _report(f"memory of {name} (--space {shlex.quote(name)}); to watch: recollect tail")
        command = [agent.name, *launch.arguments, *arguments]
        code = run_agent(command, {**os.environ, **launch.environment})
    for text in messages.texts:
        _report(text)
    if not gateway.gateway.activity.has_model_requests:
        _report(
            "no model request passed through Recollect in this run: nothing was stored or recalled"
        )
    return code


class DelayedMessages(logging.Handler):
    """Collects log messages, each text once, while an agent uses the screen."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        if len(self.texts) < MAX_DELAYED:
            self.texts[text] = None

    def emit(self, record: logging.LogRecord) -> None:
        self.add(record.getMessage())


def _report(text: str) -> None:
    click.echo(f"recollect: {harmless(text)}", err=True)  # the text may contain folder names


def _without_secrets(url: str) -> str:
    """Remove a password, or the token of another gateway, from a URL."""
    from recollect.hosts.gateway.access import without_token

    parts = urlsplit(url)
    path = without_token(parts.path)[0] if parts.path else ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=path).geturl()


def run_agent(command: list[str], environment: dict[str, str]) -> int:
    """Run the agent, which handles signals itself, in this terminal. Return its exit code."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        # The terminal sends these signals to the agent, too.
        signal.signal(number, lambda *_: None)
    process = subprocess.Popen(command, env=environment)  # noqa: S603 - what the user named
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    signal.signal(signal.SIGHUP, lambda *_: process.send_signal(signal.SIGHUP))
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        # After Ctrl-Z the shell controls the terminal. The agent continues with this process.
        os.kill(os.getpid(), signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


@click.command()
@click.option(
    "--url",
    help="Watch the gateway at this URL. Default: the one of this project, or the "
    "only one that runs.",
)
@click.option("--once", is_flag=True, help="Show the newest requests and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def tail(*, url: str | None, once: bool, as_json: bool) -> None:
    """Watch the requests of a gateway: tokens in and out, what was left out or recalled and why,
    cost, delay by the gateway.

    Finds your running gateways, also those that `recollect wrap` started. Tokens received and sent
    are estimates. Output tokens and the share read from the cache are as the provider reports them.
    The cost follows the list prices, or models.prices. Shows no message content. Ctrl-C prints the
    totals and exits."""
    gateway = _gateway(url)
    if as_json:
        for record in _records(gateway, follow=not once):
            click.echo(json.dumps(record, ensure_ascii=False))
        return
    click.echo(_describe(gateway))
    click.echo(HEAD)
    shown_records: list[dict[str, Any]] = []
    try:
        for record in _records(gateway, follow=not once):
            shown_records.append({name: record[name] for name in _SUMMED})
            for line in lines_of(record):
                click.echo(line)
        if not once:
            click.echo("the gateway has stopped")
    except KeyboardInterrupt:
        click.echo()
    if shown_records:
        click.echo(sums_of(shown_records))


def _describe(gateway: RunningGateway) -> str:
    title = f"wrap {gateway.agent}" if gateway.agent else "gateway"
    return f"{gateway.address}  {title}  {gateway.project}".rstrip()


def _gateway(url: str | None) -> RunningGateway:
    from recollect.hosts.gateway.access import (
        RunningGateway,
        gateway_token,
        running_gateways,
        without_token,
    )

    if url is None:
        project = project_space(str(Path.cwd()), keep=False)
        every = running_gateways()
        gateways = [gateway for gateway in every if gateway.project == project] or list(every)
        if not gateways:
            raise RecollectError(
                "no gateway is running: start one with `recollect gateway` or `recollect wrap "
                "AGENT`, or watch another with `recollect tail --url URL`"
            )
        if len(gateways) > 1:
            gateway_list = "".join(f"\n  {_describe(gateway)}" for gateway in gateways)
            raise RecollectError(
                f"several gateways are running: choose one with --url{gateway_list}"
            )
        return gateways[0]
    parts = urlsplit(url)
    address = f"{parts.scheme}://{parts.netloc}"
    known_gateway = next(
        (gateway for gateway in running_gateways() if gateway.address == address), None
    )
    token = without_token(parts.path)[1] or gateway_token()
    return known_gateway or RunningGateway(address=address, token=token, project="")


def _records(gateway: RunningGateway, *, follow: bool) -> Iterator[dict[str, Any]]:
    with _ask(gateway, f"/recollect/activity?follow={int(follow)}") as response:
        if response.status == 401:
            raise RecollectError(
                f"{gateway.address} needs another token: pass its base URL, which contains the "
                "token, as --url"
            )
        if response.status != 200:
            raise RecollectError(
                f"{gateway.address} answered {response.status}: check that it is a Recollect "
                "gateway"
            )
        while line := response.readline():
            yield json.loads(line)


@contextmanager
def _ask(gateway: RunningGateway, path: str) -> Iterator[http.client.HTTPResponse]:
    parts = urlsplit(gateway.address)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80)
    try:
        connection.request("GET", path, headers={"x-recollect-token": gateway.token})
        yield connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise RecollectError(
            f"no gateway answers at {gateway.address}: start it with `recollect gateway`, or name "
            "another with --url"
        ) from error
    finally:
        connection.close()


def lines_of(record: dict[str, Any]) -> list[str]:
    """Describe one request for people: a line of numbers, then the edits."""
    clock_time = time.strftime("%H:%M:%S", time.localtime(record["at"]))
    name = (record["session"] or record["path"]).rpartition(":")[2]
    session_name = name if len(name) <= _SESSION_CELLS else f"…{name[1 - _SESSION_CELLS :]}"
    usage = record["usage"] or {}
    cached_tokens, input_tokens = usage.get("cache_read_tokens", 0), usage.get("input_tokens")
    dollars = record["dollars"]
    numbers = (
        f"{clock_time}  {session_name:<{_SESSION_CELLS}}  {record['status'] or '---':>6}"
        f"  {_tokens(record['tokens_came'])} → {_tokens(record['tokens_sent'])}"
        f"  {f'{cached_tokens / input_tokens:.0%}' if input_tokens else '·':>6}"
        f" {_tokens(usage.get('output_tokens'))}"
        f" {'·' if dollars is None else f'{dollars:.{4 if dollars < 10 else 2}f}':>7}"
        f"  {_milliseconds(record['added_ms'])} {_milliseconds(record['first_byte_ms'])}"
    )
    times = "once" if record["overflows"] == 1 else f"{record['overflows']} times"
    notes = [
        record["kind"] if record["handling"] == "passed through" else "",
        f"without memory: {record['why']}" if record["handling"] == "without memory" else "",
        *record["done"],
        f"the provider refused it for its size {times}" if record["overflows"] else "",
        *(f"failed: {line}" for line in record["failed"]),
        record["outcome"],
    ]
    return [numbers, *(f"          {note}" for note in notes if note)]


def sums_of(records: list[dict[str, Any]]) -> str:
    received_tokens, sent_tokens = (
        sum(record[name] or 0 for record in records) for name in _SUMMED[:2]
    )
    usages = [record["usage"] or {} for record in records]
    cached_tokens, input_tokens, output_tokens = (
        sum(usage.get(name, 0) for usage in usages)
        for name in ("cache_read_tokens", "input_tokens", "output_tokens")
    )
    costs = [record["dollars"] for record in records if record["dollars"] is not None]
    price_note = f" ({len(costs)} of them have a known price)"
    shown_note = "" if len(costs) == len(records) else price_note
    parts = [
        number_of(len(records), "request"),
        f"{received_tokens:,} tokens received, {sent_tokens:,} sent",
        *(
            [f"{cached_tokens / input_tokens:.0%} of the input read from the cache"]
            if input_tokens
            else []
        ),
        f"{output_tokens:,} output tokens",
        *([f"${sum(costs):.2f}{shown_note}"] if costs else []),
    ]
    return " · ".join(parts)


def _tokens(count: int | None) -> str:
    return f"{'·' if count is None else count if count < 100_000 else f'{count / 1000:.0f}k':>6}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return f"{'·':>7}"
    return f"{value:>4.0f} ms" if value < 10_000 else f"{value / 1000:>5.0f} s"
