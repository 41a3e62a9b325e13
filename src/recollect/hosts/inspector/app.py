"""The inspector as routes that any host can serve: it admits visitors, calls the page, and renders
the page's values with a template. A GET request changes nothing. Pages can be read without
scripts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from recollect.core.boundary import Failure, attempted
from recollect.core.rules.price import read_prices
from recollect.core.values.tenant import KeyScope
from recollect.errors import RecollectError
from recollect.hosts.http import is_token, read_body
from recollect.hosts.inspect.svg import stylesheet
from recollect.hosts.inspect.timeline import TimelineReader
from recollect.hosts.inspector import access, memory, requests, sessions
from recollect.hosts.inspector.access import Access
from recollect.hosts.inspector.spaces import UnknownSpace
from recollect.hosts.inspector.view import FOLDER, Page, PageView, page_templates
from recollect.system.config import Settings

# Not measured: the longest form holds one fact; a slow or endless form must not occupy the server.
MAX_FORM_BYTES: Final = 200_000
FORM_SECONDS: Final = 10.0
LIVE_SECONDS: Final = 1.0
"""Interval at which the server checks whether the session of an open page has new turns."""
# Not measured: an open page that no user looks at connects again once an hour.
MAX_LIVE_SECONDS: Final = 3_600.0
_FILES: Final = ("inspector.css", "inspector.js", "icon.svg")
_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Inspector:
    """The pages of the memories. `entry` decides which memories a visitor may see."""

    def __init__(self, entry: Access, settings: Settings) -> None:
        self._access = entry
        self._templates = page_templates()
        self._timelines = TimelineReader(read_prices(settings.models.prices))
        self._ending = asyncio.Event()

    def routes(self, path: str = "") -> list[BaseRoute]:
        """Return the routes, mounted at a path."""
        routes: list[BaseRoute] = []
        for name, page in (sessions.PAGES | requests.PAGES | memory.PAGES).items():
            routes.append(Route(f"/{name}", self._endpoint_of(page)))
        for name, (scope, action) in (requests.ACTIONS | memory.ACTIONS).items():
            routes.append(
                Route(f"/{name}", self._endpoint_of(action, scope=scope), methods=["POST"])
            )
        routes.append(Route("/live", self._endpoint_of(self._live)))
        routes += [Route(f"/{name}", self._file) for name in _FILES]
        return [Mount(path, routes=routes)] if path else routes

    def end(self) -> None:
        """End the streams of open pages, because the server stops."""
        self._ending.set()

    def _endpoint_of(
        self, page: Page, *, scope: KeyScope | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page. With a `scope`, the endpoint is an action and reads a
        form."""

        async def answer(request: Request) -> Response:
            visitor = await self._access(request)
            if isinstance(visitor, Response):
                return visitor
            view = PageView(self._templates, self._timelines, request, visitor)
            response = await attempted(self._run_page(view, page, scope))
            if not isinstance(response, Failure):
                return response
            if issubclass(response.error, UnknownSpace):
                return view.notice("No such memory", response.said, 404)
            if issubclass(response.error, RecollectError):
                return view.notice("This does not work", response.said, 400)
            error_name = response.error.__name__
            return view.notice(
                "The inspector failed", f"This page cannot be shown: {error_name}.", 500
            )

        return answer

    async def _run_page(self, view: PageView, page: Page, scope: KeyScope | None) -> Response:
        if (scope or "read") not in view.visitor.scopes:
            return view.notice(
                "Not allowed", f"This needs a key with the scope {scope or 'read'}.", 403
            )
        if scope is not None:
            try:
                body = await read_body(view.request, max_bytes=MAX_FORM_BYTES, seconds=FORM_SECONDS)
            except HTTPException as refusal:
                return view.notice("The form was not read", refusal.detail, refusal.status_code)
            view.form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
            if not is_token(view.parameter("form_token"), view.visitor.form_token):
                return view.notice(
                    "The form has expired", "Load its page again, then send it.", 403
                )
        return await page(view)

    async def _file(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        text = await asyncio.to_thread((FOLDER / name).read_text, "utf-8")
        if name.endswith(".css"):
            text = await asyncio.to_thread(stylesheet) + text
        headers = access.policy(secrets.token_urlsafe(16))
        return Response(text, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])

    async def _live(self, view: PageView) -> Response:
        known_turns = view.number("turns")
        async with view.open():
            pass  # an unknown memory is an error, not a stream that breaks off

        async def events() -> AsyncIterator[bytes]:
            nonlocal known_turns
            until = asyncio.get_running_loop().time() + MAX_LIVE_SECONDS
            yield b": open\n\n"
            async with view.open() as opened_space:
                while not self._ending.is_set() and asyncio.get_running_loop().time() < until:
                    turns = len(await opened_space.store.turns(view.session))
                    if turns != known_turns:
                        known_turns = turns
                        yield f"event: turns\ndata: {turns}\n\n".encode()
                    try:
                        await asyncio.wait_for(self._ending.wait(), LIVE_SECONDS)
                    except TimeoutError:
                        yield b": still here\n\n"

        return StreamingResponse(
            events(), headers=access.policy(view.nonce), media_type="text/event-stream"
        )
