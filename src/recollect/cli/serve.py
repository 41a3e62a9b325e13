"""`recollect serve`: one node of a service for tenants, on PostgreSQL."""

from __future__ import annotations

import gc
import json
import logging
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from recollect.cli.store_options import store_option
from recollect.system.config import load_settings

if TYPE_CHECKING:
    import socket
    from contextlib import AbstractAsyncContextManager

    from recollect.hosts.service.app import MountedApp, MountMcp
    from recollect.hosts.service.memories import TenantMemories
    from recollect.system.config import Settings


@click.command()
@store_option
@click.option("--host", help="Listen on this address. Default: serve.host [127.0.0.1].")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Listen on this port. 0: a free one. Default: serve.port [8789].",
)
@click.option("--openapi", "only_document", is_flag=True, help="Print the OpenAPI document.")
def serve(*, url: str | None, host: str | None, port: int | None, only_document: bool) -> None:
    """Run one node of the HTTP service; run as many nodes as you like.

    \b
    recollect db init postgresql://OWNER@HOST/DATABASE --app-password-file FILE
    export RECOLLECT_STORE__URL=postgresql://recollect_app@HOST/DATABASE
    recollect tenant create acme
    recollect key create acme
    recollect serve
    recollect worker

    The database's password may be in PGPASSWORD or ~/.pgpass instead. Nodes keep no state, so any
    of them answers any request.
    """
    if only_document:
        from recollect.hosts.service.api import openapi

        click.echo(json.dumps(openapi(), indent=2, ensure_ascii=False))
        return
    given = {"serve.host": host, "serve.port": port, "store.url": url}
    named = {name: value for name, value in given.items() if value is not None}
    settings = load_settings(arguments=named).settings
    from recollect.adapters.wiring.stores import require_server
    from recollect.system.loopback import address_of, bound_to

    # wrong settings are reported before seconds of imports
    require_server(settings.store.url)
    host_and_port = (settings.serve.host, settings.serve.port)
    with bound_to(*host_and_port, mend="set another as serve.port") as opened:
        _serve(settings, opened, address_of(opened))


def _serve(settings: Settings, opened: socket.socket, address: str) -> None:
    from recollect.hosts.service.running import server_of, service_of
    from recollect.hosts.service.telemetry import NODE, telling, watch, write_line

    service = service_of(settings, mcp=_mcp())
    with telling(settings) as metrics:
        metrics_port = None if metrics is None else metrics.port

        def tell(event: str, line: str, **fields: object) -> None:
            if settings.telemetry.log_format is None:
                click.echo(line, err=True)
            else:
                write_line(NODE, logging.INFO, event, fields)

        def on_ready() -> None:
            gc.collect()
            gc.freeze()  # what is loaded now stays: collecting it takes a tenth of a second
            lines = [f"Recollect serves on {address}: see /openapi.json"]
            if not settings.serve.jobs:
                lines.append("Jobs (facts, retention): run `recollect worker` next to it")
            if metrics_port is not None:
                lines.append(f"Metrics: port {metrics_port}, /metrics")
            jobs = "node" if settings.serve.jobs else "worker"
            tell("serving", "\n".join(lines), address=address, metrics_port=metrics_port, jobs=jobs)

        def on_draining() -> None:
            seconds = settings.serve.drain_seconds
            line = f"Shutting down: /readyz fails, requests are served for {seconds:.3g} s"
            tell("draining", f"{line}; a second signal ends that", seconds=seconds)

        server = server_of(service, settings, on_ready=on_ready, on_draining=on_draining)
        if metrics is not None:
            watch(service, metrics)
        with suppress(KeyboardInterrupt):  # the server has ended in order, then hands the signal on
            server.run(sockets=[opened])
        if service.draining:
            tell("ended", "Ended")


def _mcp() -> MountMcp | None:
    """The MCP server of a node, if the extra `mcp` is installed."""
    if find_spec("mcp") is None:
        return None

    def mount(memories: TenantMemories, secret: bytes) -> AbstractAsyncContextManager[MountedApp]:
        from recollect.hosts.service.mcp import mcp_for_tenants  # it takes seconds, and others wait

        return mcp_for_tenants(memories, secret)

    return mount
