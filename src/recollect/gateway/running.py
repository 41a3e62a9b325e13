"""Running the gateway: on its own until it is told to stop, or as long as something else runs."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from recollect.config import Settings
from recollect.engine import Engine
from recollect.errors import RecollectError, SettingsError
from recollect.gateway.asgi import http_server
from recollect.gateway.server import Gateway
from recollect.loopback import LOOPBACK, address_of, listen_on

if TYPE_CHECKING:
    import uvicorn

START_SECONDS: Final = 30.0


def gateway_token(settings: Settings) -> str | None:
    """The token that requests must bring; SettingsError where one is needed and missing."""
    gateway = settings.gateway
    if gateway.token_variable is not None:
        token = os.environ.get(gateway.token_variable)
        if not token:
            raise SettingsError(
                f"gateway.token_variable names {gateway.token_variable}, which is not set: put the "
                "token into the environment"
            )
        return token
    if gateway.host not in LOOPBACK:
        raise SettingsError(
            f"gateway.host is {gateway.host}, which others can reach: name the variable of a token "
            "as gateway.token_variable, or listen on 127.0.0.1"
        )
    return None


def listening_socket(settings: Settings) -> socket.socket:
    """The socket to serve on; RecollectError where the port is taken."""
    gateway = settings.gateway
    return listen_on(gateway.host, gateway.port, mend="set another as gateway.port")


def server_of(gateway: Gateway) -> uvicorn.Server:
    """The HTTP server of a gateway; it adds no headers of its own to what providers send."""
    return http_server(gateway, feature="the gateway", extra="gateway")


class BackgroundServer:
    """An HTTP server in a thread of its own, for as long as the block runs."""

    def __init__(self, server: uvicorn.Server, opened: socket.socket) -> None:
        self._socket = opened
        self.url = address_of(opened)
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
        """Why it did not start, for the error."""
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
    """A gateway in a thread of its own."""

    def __init__(
        self,
        settings: Settings,
        *,
        opened: Callable[[str], Engine] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.gateway = Gateway(settings, token=gateway_token(settings), opened=opened, tell=tell)
        super().__init__(server_of(self.gateway), listening_socket(settings))

    def _why_not(self) -> str:
        return str(self.gateway.startup_error or super()._why_not())
