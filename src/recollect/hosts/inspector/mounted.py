"""The inspector of this machine's memories, as an application that other servers mount under a
path. The first request imports the pages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from recollect.hosts.inspector.access import LocalAccess
from recollect.hosts.inspector.spaces import LocalSpaces

if TYPE_CHECKING:
    from recollect.hosts.inspector.app import Inspector
    from recollect.system.config import Settings

PATH: Final = "/recollect/inspector"


class LocalInspector:
    """The inspector, for this user's browsers only."""

    def __init__(self, settings: Settings, *, path: str = "", local: bool = True) -> None:
        """`path` is the mount path. With `local`, Host must name this machine."""
        self._settings = settings
        self._path = path
        self._access = LocalAccess(LocalSpaces(settings), local=local)
        self._app: Starlette | None = None
        self._inspector: Inspector | None = None
        self._making = asyncio.Lock()

    def link(self, address: str) -> str:
        """Return a link that admits one browser, once."""
        return f"{address}{self._path}/?token={self._access.new_token()}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._making:
            if self._app is None:  # the import would block the streams of others
                self._app = await asyncio.to_thread(self._made)
        await self._app(scope, receive, send)

    def _made(self) -> Starlette:
        from recollect.hosts.http import application
        from recollect.hosts.inspector.app import Inspector

        self._inspector = Inspector(self._access.admit, self._settings)
        return application(self._inspector.routes(self._path))

    def end(self) -> None:
        """End the streams of open pages, because the server stops."""
        if self._inspector is not None:
            self._inspector.end()
