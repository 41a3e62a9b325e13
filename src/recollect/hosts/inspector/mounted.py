"""The inspector of this machine's memories, as an application that other servers mount under a
path. The first request imports the pages."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from recollect.hosts.http import is_own_user
from recollect.hosts.inspector.access import LocalAccess, refusal_of
from recollect.hosts.inspector.spaces import LocalSpaces

if TYPE_CHECKING:
    from recollect.hosts.inspector.app import Inspector
    from recollect.system.config import Settings

PATH: Final = "/recollect/inspector"


class LocalInspector:
    """The inspector, for this user's browsers only."""

    def __init__(
        self, settings: Settings, *, path: str = "", public_hosts: Collection[str] | None = None
    ) -> None:
        """`path` is the mount path. Host must name this machine, or one of `public_hosts`."""
        self._settings = settings
        self._path = f"{path}/{secrets.token_urlsafe(12)}"
        self._public_hosts = public_hosts
        self._access = LocalAccess(LocalSpaces(settings))
        self._app: Starlette | None = None
        self._inspector: Inspector | None = None
        self._making = asyncio.Lock()

    def link(self, address: str) -> str:
        """Return a link that admits one browser, once."""
        return f"{address}{self._path}/?token={self._access.new_token()}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal_of(Request(scope)) if scope["type"] == "http" else None
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        async with self._making:
            if self._app is None:  # the import would block the streams of others
                self._app = await asyncio.to_thread(self._make_app)
        await self._app(scope, receive, send)

    def _refusal_of(self, request: Request) -> Response | None:
        if not is_own_user(request.scope):
            return PlainTextResponse("only this machine's user may see these pages", 403)
        refusal = refusal_of(request, self._public_hosts)
        if refusal is None and not request.url.path.startswith(f"{self._path}/"):
            return self._access.refuse("This address is not, or no longer, in use.")
        return refusal

    def _make_app(self) -> Starlette:
        from recollect.hosts.http import application
        from recollect.hosts.inspector.app import Inspector

        self._inspector = Inspector(self._access.admit, self._settings)
        return application(self._inspector.routes(self._path))

    def end(self) -> None:
        """End the streams of open pages, because the server stops."""
        if self._inspector is not None:
            self._inspector.end()
