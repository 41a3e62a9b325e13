"""`recollect tail`: what a running gateway does, request by request, as it happens."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from recollect.errors import RecollectError
from recollect.system.agent_folders import project_space
from recollect.system.config import Settings
from recollect.system.plain_text import number_of

if TYPE_CHECKING:
    from recollect.hosts.gateway.access import RunningGateway

HEAD = "time      session            status   came →   sent  cached    out  cost $   added   first"
_CUT = 16
_SUMMED = ("tokens_came", "tokens_sent", "usage", "dollars")


@click.command()
@click.option(
    "--url", help="The gateway; else yours that runs in this project, or the only one that runs."
)
@click.option("--all", "every", is_flag=True, help="Watch all of your gateways.")
@click.option("--once", is_flag=True, help="Show the newest requests and stop.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object per line.")
def tail(url: str | None, every: bool, once: bool, as_json: bool) -> None:  # noqa: FBT001 - flags
    """Watch a gateway: tokens in and out, what was saved and recalled and why, money, time added.

    It finds your running gateways by itself, also those that `recollect wrap` started. Tokens that
    came and went out are estimates. The share that was read from the cache and what was written are
    the provider's own figures; the cost is by list prices, or by models.prices. Nothing of what was
    said is shown. Ctrl-C ends it with the sums.
    """
    chosen = _chosen(url, every=every)
    if as_json:
        for _, record in _records(chosen, follow=not once):
            click.echo(json.dumps(record, ensure_ascii=False))
        return
    for gateway in chosen:
        click.echo(_named(gateway))
    click.echo(HEAD)
    shown: list[dict[str, Any]] = []
    last = chosen[0]
    try:
        for gateway, record in _records(chosen, follow=not once):
            if gateway is not last:
                last = gateway
                click.echo(f"{gateway.address}:")
            shown.append({name: record[name] for name in _SUMMED})
            for line in lines_of(record):
                click.echo(line)
        if not once:
            click.echo("the gateway has ended")
    except KeyboardInterrupt:
        click.echo()
    if shown:
        click.echo(sums_of(shown))


def _named(gateway: RunningGateway) -> str:
    """A gateway in a line: its address, whom it serves, and where it was started."""
    what = f"wrap {gateway.agent}" if gateway.agent else "gateway"
    return f"{gateway.address}  {what}  {gateway.project}".rstrip()


def _chosen(url: str | None, *, every: bool = False) -> list[RunningGateway]:
    """The gateways that are meant; RecollectError where none runs, or it is not clear which."""
    from recollect.hosts.gateway.access import running_gateways

    found = running_gateways()
    if url is not None:
        return [_at(url, found)]
    if not found:
        raise RecollectError(
            "none of your gateways runs: start one with `recollect gateway` or "
            "`recollect wrap AGENT`, or name one by --url"
        )
    if every:
        return list(found)
    here = _here(found)
    if len(here) == 1:
        return here
    listed = "".join(f"\n  {_named(gateway)}" for gateway in found)
    raise RecollectError(f"several of your gateways run: name one by --url, or give --all{listed}")


def _here(found: Sequence[RunningGateway]) -> list[RunningGateway]:
    """The gateways of this project; all of them where it has none."""
    project = project_space(str(Path.cwd()))
    return [one for one in found if one.project == project] or list(found)


def _at(url: str, found: Sequence[RunningGateway]) -> RunningGateway:
    """The gateway at a URL, with the token that this user knows for it."""
    from recollect.hosts.gateway.access import RunningGateway, gateway_token, without_token

    parts = urlsplit(url)
    _, token = without_token(parts.path)
    address = f"{parts.scheme}://{parts.netloc}"
    for gateway in found:
        if gateway.address == address:
            return gateway
    token = token or gateway_token()
    return RunningGateway(address=address, token=token, project="")


def _records(
    gateways: Sequence[RunningGateway], *, follow: bool
) -> Iterator[tuple[RunningGateway, dict[str, Any]]]:
    """The records of gateways as they come, until all of them have ended."""
    if len(gateways) == 1:
        for record in _followed(gateways[0], follow=follow):
            yield gateways[0], record
        return
    came: queue.Queue[tuple[RunningGateway, dict[str, Any] | None]] = queue.Queue()

    def read(gateway: RunningGateway) -> None:
        try:
            for record in _followed(gateway, follow=follow):
                came.put((gateway, record))
        except RecollectError as error:
            click.echo(str(error), err=True)
        finally:
            came.put((gateway, None))

    for gateway in gateways:
        threading.Thread(target=read, args=(gateway,), daemon=True).start()
    left = len(gateways)
    while left:
        gateway, told = came.get()
        if told is None:
            left -= 1
        else:
            yield gateway, told


def _followed(gateway: RunningGateway, *, follow: bool) -> Iterator[dict[str, Any]]:
    with _asked(gateway, f"/recollect/activity?follow={int(follow)}") as response:
        if response.status == 401:
            raise RecollectError(
                f"{gateway.address} wants another token: give its base URL with the token as --url"
            )
        if response.status != 200:
            raise RecollectError(
                f"{gateway.address} answers {response.status}: is that a gateway of ours?"
            )
        while line := response.readline():
            yield json.loads(line)


@contextmanager
def _asked(gateway: RunningGateway, path: str) -> Iterator[http.client.HTTPResponse]:
    """A gateway's answer; RecollectError where none is there."""
    parts = urlsplit(gateway.address)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80)
    try:
        connection.request("GET", path, headers={"x-recollect-token": gateway.token})
        yield connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise RecollectError(
            f"no gateway answers at {gateway.address}: start it with `recollect gateway`, or name "
            "another by --url"
        ) from error
    finally:
        connection.close()


def gateway_url(settings: Settings) -> str:
    """The address of the gateway that these settings name."""
    host, port = settings.gateway.host, settings.gateway.port
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def show_live(session: str, *, url: str | None, as_json: bool) -> None:
    """The newest turn of a session at a running gateway: what became of each message, and why."""
    from recollect.hosts.gateway.access import running_gateways

    asked = [_at(url, running_gateways())] if url else _here(_chosen(None, every=True))
    report = None
    for gateway in asked:
        with _asked(gateway, f"/recollect/reports/{quote(session)}") as response:
            content = json.loads(response.read())
            if response.status == 200:
                report = content
                break
    if report is None:
        raise RecollectError(
            f"no session {session or 'at all'} has crossed {_listed(asked)} lately: "
            "`recollect tail` shows which did, --url names another gateway"
        )
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
        return
    from recollect.hosts.inspect.text import turn_text
    from recollect.hosts.inspect.turns import turn_from_json

    turn = turn_from_json(report)
    click.echo(f"{report['session']}\n{report['summary']}\n\n{turn_text(turn)}")


def _listed(gateways: Sequence[RunningGateway]) -> str:
    return "the gateway at " + " or ".join(gateway.address for gateway in gateways)


def lines_of(record: dict[str, Any]) -> list[str]:
    """One request for people: a line of numbers, and what was done where that is worth a line."""
    at = time.strftime("%H:%M:%S", time.localtime(record["at"]))
    name = (record["session"] or record["path"]).rpartition(":")[2]
    shown = name if len(name) <= _CUT else f"…{name[1 - _CUT :]}"
    usage = record["usage"] or {}
    read, whole = usage.get("cache_read_tokens", 0), usage.get("input_tokens")
    dollars = record["dollars"]
    numbers = (
        f"{at}  {shown:<{_CUT}}  {record['status'] or '---':>6}"
        f"  {_tokens(record['tokens_came'])} → {_tokens(record['tokens_sent'])}"
        f"  {f'{read / whole:.0%}' if whole else '·':>6} {_tokens(usage.get('output_tokens'))}"
        f" {'·' if dollars is None else f'{dollars:.{4 if dollars < 10 else 2}f}':>7}"
        f"  {_milliseconds(record['added_ms'])} {_milliseconds(record['first_byte_ms'])}"
    )
    times = "once" if record["overflows"] == 1 else f"{record['overflows']} times"
    notes = [
        *([record["kind"]] if record["handling"] == "passed through" else []),
        *([f"without memory: {record['why']}"] if record["handling"] == "without memory" else []),
        *record["done"],
        *([f"the provider refused it for its size {times}"] if record["overflows"] else []),
        *(f"failed: {line}" for line in record["failed"]),
        *([record["outcome"]] if record["outcome"] else []),
    ]
    return [numbers, *(f"          {note}" for note in notes if note)]


def sums_of(records: list[dict[str, Any]]) -> str:
    """All requests that were shown, in one line."""
    came, sent = (sum(one[name] or 0 for one in records) for name in _SUMMED[:2])
    usages = [one["usage"] or {} for one in records]
    read, whole, out = (
        sum(usage.get(name, 0) for usage in usages)
        for name in ("cache_read_tokens", "input_tokens", "output_tokens")
    )
    costs = [one["dollars"] for one in records if one["dollars"] is not None]
    some = f" ({len(costs)} of them have a known price)"
    priced = "" if len(costs) == len(records) else some
    parts = [
        number_of(len(records), "request"),
        f"{came:,} tokens came, {sent:,} went out",
        *([f"{read / whole:.0%} of the input read from the cache"] if whole else []),
        f"{out:,} tokens written",
        *([f"${sum(costs):.2f}{priced}"] if costs else []),
    ]
    return " · ".join(parts)


def _tokens(count: int | None) -> str:
    return f"{'·' if count is None else count if count < 100_000 else f'{count / 1000:.0f}k':>6}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return f"{'·':>7}"
    return f"{value:>4.0f} ms" if value < 10_000 else f"{value / 1000:>5.0f} s"
