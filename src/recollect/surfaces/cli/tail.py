"""`recollect tail`: what a running gateway does, request by request, as it happens."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlsplit

import click

from recollect.config import Settings, load_settings
from recollect.errors import RecollectError

HEAD = "time      session            status   came →   sent  cached    out  cost $   added   first"
_CUT = 16
_SUMMED = ("tokens_came", "tokens_sent", "usage", "dollars")


@click.command()
@click.option("--url", help="The gateway; else the one that the settings name.")
@click.option("--once", is_flag=True, help="Show the newest requests and stop.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line.")
def tail(url: str | None, once: bool, as_json: bool) -> None:  # noqa: FBT001 - flags of the command
    """Watch a gateway: tokens in and out, what was saved and recalled and why, money, time added.

    Tokens that came and went out are estimates. The share that was read from the cache and what was
    written are the provider's own figures; the cost is by list prices, or by models.prices. Nothing
    of what was said is shown. Ctrl-C ends it with the sums.
    """
    base, token = _gateway(url)
    if as_json:
        for record in _records(base, follow=not once, token=token):
            click.echo(json.dumps(record, ensure_ascii=False))
        return
    click.echo(f"{base}\n{HEAD}")
    shown: list[dict[str, Any]] = []
    try:
        for record in _records(base, follow=not once, token=token):
            shown.append({name: record[name] for name in _SUMMED})
            for line in lines_of(record):
                click.echo(line)
        if not once:
            click.echo(f"the gateway at {base} has ended")
    except KeyboardInterrupt:
        click.echo()
    if shown:
        click.echo(sums_of(shown))


def _records(base: str, *, follow: bool, token: str | None) -> Iterator[dict[str, Any]]:
    with _asked(base, f"/recollect/activity?follow={int(follow)}", token) as response:
        if response.status != 200:
            raise RecollectError(f"{base} answers {response.status}: is that a gateway of ours?")
        while line := response.readline():
            yield json.loads(line)


@contextmanager
def _asked(base: str, path: str, token: str | None) -> Iterator[http.client.HTTPResponse]:
    """A gateway's answer; RecollectError where none is there."""
    parts = urlsplit(base)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80)
    try:
        connection.request("GET", path, headers={"x-recollect-token": token} if token else {})
        yield connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise RecollectError(
            f"no gateway answers at {base}: start it with `recollect gateway`, or name it by --url"
        ) from error
    finally:
        connection.close()


def gateway_url(settings: Settings) -> str:
    """The base URL of the gateway that these settings name."""
    host, port = settings.gateway.host, settings.gateway.port
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _gateway(url: str | None) -> tuple[str, str | None]:
    """Where the gateway is, and the token that it wants."""
    settings = load_settings().settings
    variable = settings.gateway.token_variable
    return url or gateway_url(settings), os.environ.get(variable) if variable else None


def show_live(session: str, *, url: str | None, as_json: bool) -> None:
    """The newest turn of a session at a running gateway: what became of each message, and why."""
    base, token = _gateway(url)
    with _asked(base, f"/recollect/reports/{quote(session)}", token) as response:
        report = json.loads(response.read())
        if response.status != 200:
            raise RecollectError(
                f"no session {session or 'at all'} has crossed the gateway at {base} lately: "
                "`recollect tail` shows which did, --url names another gateway"
            )
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
        return
    click.echo(f"{report['session']}\n{report['summary']}\n")
    for line in report["lines"]:
        if line["outcome"] not in ("done", "nothing"):
            click.echo(f"  {line['stage']}: {line['outcome']}: {line['said']}")
    for (fate, _), run in groupby(report["fates"], key=_alike):
        rows = list(run)
        before, after = (sum(row[key] for row in rows) for key in ("tokens_before", "tokens_after"))
        places = [row["place"] + 1 for row in rows if row["place"] is not None]
        where = "ours" if not places else _span(places)
        click.echo(f"  {where:>11}  {fate:<11} {before:>7} → {after:>6}  {rows[0]['said']}")


def _alike(fate: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Fates that stand in one line: whatever their numbers."""
    return fate["fate"], tuple(reason["cause"] for reason in fate["reasons"])


def _span(places: list[int]) -> str:
    return str(places[0]) if len(places) == 1 else f"{places[0]} to {places[-1]}"


def lines_of(record: dict[str, Any]) -> list[str]:
    """One request for people: a line of numbers, and what was done where that is worth a line."""
    at = time.strftime("%H:%M:%S", time.localtime(record["at"]))
    name = (record["session"] or record["path"]).rpartition(":")[2]
    shown = name if len(name) <= _CUT else f"…{name[1 - _CUT :]}"
    usage = record["usage"] or {}
    numbers = (
        f"{at}  {shown:<{_CUT}}  {record['status'] or '---':>6}"
        f"  {_tokens(record['tokens_came'])} → {_tokens(record['tokens_sent'])}"
        f"  {_share(usage)} {_tokens(usage.get('output_tokens'))}"
        f" {_money(record['dollars'])}"
        f"  {_milliseconds(record['added_ms'])} {_milliseconds(record['first_byte_ms'])}"
    )
    notes = [
        *([record["kind"]] if record["handling"] == "passed through" else []),
        *([f"without memory: {record['why']}"] if record["handling"] == "without memory" else []),
        *record["done"],
        *([_refused(record["overflows"])] if record["overflows"] else []),
        *(f"failed: {line}" for line in record["failed"]),
        *([record["outcome"]] if record["outcome"] else []),
    ]
    return [numbers, *(f"          {note}" for note in notes if note)]


def _refused(times: int) -> str:
    return f"the provider refused it for its size {'once' if times == 1 else f'{times} times'}"


def sums_of(records: list[dict[str, Any]]) -> str:
    """All requests that were shown, in one line."""
    came, sent = (sum(one[name] or 0 for one in records) for name in _SUMMED[:2])
    usages = [one["usage"] or {} for one in records]
    read, whole, out = (
        sum(usage.get(name, 0) for usage in usages)
        for name in ("cache_read_tokens", "input_tokens", "output_tokens")
    )
    costs = [one["dollars"] for one in records if one["dollars"] is not None]
    parts = [
        "1 request" if len(records) == 1 else f"{len(records):,} requests",
        f"{came:,} tokens came, {sent:,} went out",
        *([f"{read / whole:.0%} of the input read from the cache"] if whole else []),
        f"{out:,} tokens written",
        *([f"${sum(costs):.2f}{_priced(len(costs), len(records))}"] if costs else []),
    ]
    return " · ".join(parts)


def _priced(count: int, of: int) -> str:
    return "" if count == of else f" ({count} of them have a known price)"


def _share(usage: dict[str, int]) -> str:
    whole = usage.get("input_tokens")
    if not whole:
        return f"{'·':>6}"
    return f"{usage.get('cache_read_tokens', 0) / whole:>6.0%}"


def _money(dollars: float | None) -> str:
    return (
        f"{'·':>7}"
        if dollars is None
        else f"{dollars:>7.4f}"
        if dollars < 10
        else f"{dollars:>7.2f}"
    )


def _tokens(count: int | None) -> str:
    if count is None:
        return f"{'·':>6}"
    return f"{count:>6}" if count < 100_000 else f"{count / 1000:>5.0f}k"


def _milliseconds(value: float | None) -> str:
    return (
        f"{'·':>7}"
        if value is None
        else f"{value:>4.0f} ms"
        if value < 10_000
        else f"{value / 1000:>5.0f} s"
    )
