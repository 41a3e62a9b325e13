"""Runs the gateway until it is stopped, or in a thread while other work runs."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Self

from recollect.core.engine import Engine
from recollect.hosts.gateway.access import RunningGateway, announce, gateway_token, with_token
from recollect.hosts.gateway.server import Gateway
from recollect.hosts.http import BackgroundServer, HttpServer
from recollect.system.config import Settings
from recollect.system.loopback import listen_on
from recollect.system.projects import project_space


def listening_socket(settings: Settings) -> socket.socket:
    """Return the socket on which to serve. Raise RecollectError if the port is in use."""
    gateway = settings.gateway
    return listen_on(gateway.host, gateway.port, fix="set another as gateway.port")


def server_of(gateway: Gateway) -> HttpServer:
    def stop() -> None:
        gateway.activity.end()
        gateway.inspector.end()

    return HttpServer(gateway, on_stop=stop)


class BackgroundGateway(BackgroundServer):
    """A gateway in its own thread. `url` contains the token, `address` does not."""

    def __init__(
        self,
        settings: Settings,
        *,
        open_engine: Callable[[str], Engine] | None = None,
        notify: Callable[[str], None] | None = None,
        agent: str = "",
    ) -> None:
        """Start the gateway's thread. `agent` is the only agent that gets the token."""
        token = secrets.token_urlsafe(24) if agent else gateway_token()
        self.gateway: Gateway = Gateway(
            settings, token=token, open_engine=open_engine, notify=notify, own_user_only=bool(agent)
        )
        super().__init__(server_of(self.gateway), listening_socket(settings))
        self.url: str = with_token(self.address, token)
        project = project_space(str(Path.cwd()), keep=False)
        running = RunningGateway(address=self.address, token=token, project=project, agent=agent)
        self._announcement = announce(running)

    def __enter__(self) -> Self:
        super().__enter__()
        self._announcement.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._announcement.__exit__(None, None, None)
        super().__exit__()
