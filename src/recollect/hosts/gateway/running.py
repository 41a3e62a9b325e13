"""Runs the gateway until it is stopped, or in a thread while other work runs."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from recollect.core.engine import Engine
from recollect.errors import RecollectError
from recollect.hosts.gateway.access import RunningGateway, announced, gateway_token, with_token
from recollect.hosts.gateway.asgi import http_server
from recollect.hosts.gateway.server import Gateway
from recollect.system.config import Settings
from recollect.system.loopback import address_of, listen_on
from recollect.system.places import project_space

if TYPE_CHECKING:
    import uvicorn

START_SECONDS: Final = 30.0


def listening_socket(settings: Settings) -> socket.socket:
    """Return the socket to serve on. Raise RecollectError if the port is taken."""
    gateway = settings.gateway
    return listen_on(gateway.host, gateway.port, mend="set another as gateway.port")


def server_of(gateway: Gateway) -> uvicorn.Server:
    return http_server(gateway, feature="the gateway", extra="gateway")


class BackgroundServer:
    """An HTTP server in its own thread while the block runs."""

    def __init__(self, server: uvicorn.Server, opened: socket.socket) -> None:
        self._socket = opened
        self.address: str = address_of(opened)
        self.url: str = self.address
        self._server = server
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [opened]}, name="recollect-server", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RecollectError(f"the server did not start: {self._why_not()}")
            time.sleep(0.01)
        return self

    def _why_not(self) -> str:
        return "it took too long"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(START_SECONDS)
        self._socket.close()


class BackgroundGateway(BackgroundServer):
    """A gateway in its own thread. `url` contains the token, `address` does not."""

    def __init__(
        self,
        settings: Settings,
        *,
        opened: Callable[[str], Engine] | None = None,
        tell: Callable[[str], None] | None = None,
        agent: str = "",
    ) -> None:
        """`agent` is the agent that this gateway is started for. Only that agent gets the token."""
        token = secrets.token_urlsafe(24) if agent else gateway_token()
        self.gateway = Gateway(
            settings, token=token, opened=opened, tell=tell, own_user_only=bool(agent)
        )
        super().__init__(server_of(self.gateway), listening_socket(settings))
        self.url = with_token(self.address, token)
        self._announced = announced(
            RunningGateway(
                address=self.address,
                token=token,
                project=project_space(str(Path.cwd())),
                agent=agent,
            )
        )

    def __enter__(self) -> Self:
        super().__enter__()
        self._announced.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._announced.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    def _why_not(self) -> str:
        return str(self.gateway.startup_error or super()._why_not())
