"""The inspector as routes that any host can serve: it lets visitors in, calls the page, and renders
its values with a template. Nothing changes by a GET. Reading needs no script."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from recollect.core.boundary import Failure, attempted
from recollect.core.formats.json_text import when
from recollect.core.rules.price import read_prices
from recollect.core.values.tenant import KeyScope
from recollect.errors import RecollectError
from recollect.hosts.http import HTTPException, application, read_body
from recollect.hosts.inspect import svg
from recollect.hosts.inspect.timeline import TimelineReader, dollars
from recollect.hosts.inspect.turns import shown_text
from recollect.hosts.inspector import access
from recollect.hosts.inspector.access import Access, Visitor
from recollect.hosts.inspector.spaces import OpenSpace
from recollect.system.config import Settings
from recollect.system.plain_text import number_of, plain_line, size_text

MOST_FORM_BYTES: Final = 200_000
FORM_SECONDS: Final = 10.0
LIVE_SECONDS: Final = 1.0
"""How often a page that is open asks whether its session has grown."""
MOST_LIVE_SECONDS: Final = 3_600.0
_FILES: Final = {"inspector.css": "text/css", "inspector.js": "text/javascript"}
_FOLDER: Final = Path(__file__).parent / "templates"
Page: TypeAlias = "Callable[[View], Awaitable[Response]]"


@dataclass(slots=True)
class View:
    """One request for a page."""

    inspector: Inspector
    request: Request
    visitor: Visitor
    form: Mapping[str, str] = field(default_factory=dict, repr=False)
    nonce: str = field(default_factory=partial(secrets.token_urlsafe, 16))

    def given(self, name: str) -> str:
        """Return a parameter of the form or the address; empty if it is missing."""
        return self.form.get(name, self.request.query_params.get(name, ""))

    def number(self, name: str, default: int = 0) -> int:
        """Return a parameter that is a number from 0."""
        text = self.given(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else default

    @property
    def space(self) -> str:
        return self.given("space")

    @property
    def session(self) -> str:
        return self.given("session")

    def open(self, name: str = "") -> AbstractAsyncContextManager[OpenSpace]:
        return self.visitor.spaces.open(name or self.space)

    def link(self, page: str = "", /, **given: object) -> str:
        """Return the address of a page."""
        named = {name: str(value) for name, value in given.items() if value not in (None, "")}
        query = f"?{urlencode(named)}" if named else ""
        return f"{self.request.scope.get('root_path', '')}/{page}{query}"

    def here(self, page: str, /, **given: object) -> str:
        """Return the address of a page of this session."""
        return self.link(page, **{"space": self.space, "session": self.session, **given})

    def render(self, template: str, status: int = 200, /, **values: object) -> Response:
        """Render a page. A template sees `view` and these values."""
        text = self.inspector.templates.get_template(template).render(
            view=self, link=self.link, here=self.here, **values
        )
        return access.answer(text, status, nonce=self.nonce)

    def notice(self, title: str, text: str, status: int = 200, **values: object) -> Response:
        """Render a page with one message."""
        return self.render("notice.html", status, title=title, text=text, **values)

    def go(self, address: str) -> Response:
        """Send the browser to another page after a form."""
        return RedirectResponse(address, 303, access.policy(self.nonce))


class Inspector:
    """The pages of the memories that an `access` lets visitors see."""

    def __init__(self, entry: Access, settings: Settings) -> None:
        self._access = entry
        self.timelines: TimelineReader = TimelineReader(read_prices(settings.models.prices))
        self._ending = asyncio.Event()

    @cached_property
    def templates(self) -> Environment:
        """The environment of the templates. Every value is escaped."""
        made = Environment(
            loader=PackageLoader(__package__ or ""),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters.update(
            n=lambda value: f"{value:,}",
            line=plain_line,
            when=when,
            short=svg.short,
            dollars=dollars,
            size=size_text,
            shown=shown_text,
            cap=lambda text: text[:1].upper() + text[1:],
            drawing=Markup,  # only for pictures of `svg`, which escapes its texts
        )
        made.globals.update(number_of=number_of)
        return made

    def routes(self) -> list[Route]:
        """Return the routes, to be mounted at any path."""
        from recollect.hosts.inspector import memory, requests, sessions

        found = [
            Route(f"/{name}", self._answered(page))
            for name, page in (sessions.PAGES | requests.PAGES | memory.PAGES).items()
        ]
        for name, (scope, action) in (requests.ACTIONS | memory.ACTIONS).items():
            found.append(Route(f"/{name}", self._answered(action, scope=scope), methods=["POST"]))
        found.append(Route("/favicon.ico", _nothing))
        found.append(Route("/live", self._answered(self._live)))
        found += [Route(f"/{name}", self._file) for name in _FILES]
        return found

    def end(self) -> None:
        """End the streams of open pages, because the server stops."""
        self._ending.set()

    def _answered(
        self, page: Page, *, scope: KeyScope | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint. With `scope` it is an action, which takes a form."""

        async def answer(request: Request) -> Response:
            visitor = await self._access.admit(request)
            if isinstance(visitor, Response):
                return visitor
            view = View(self, request, visitor)
            done = await attempted(self._shown(view, page, scope))
            if not isinstance(done, Failure):
                return done
            if issubclass(done.error, RecollectError):
                return view.notice("This does not work", done.said, 400)
            return view.notice(
                "The inspector failed", f"{done.said}. The command line may show more.", 500
            )

        return answer

    async def _shown(self, view: View, page: Page, scope: KeyScope | None) -> Response:
        if (scope or "read") not in view.visitor.scopes:
            return view.notice(
                "Not allowed", f"This needs a key with the scope {scope or 'read'}.", 403
            )
        if scope is not None:
            try:
                body = await read_body(view.request, most=MOST_FORM_BYTES, seconds=FORM_SECONDS)
            except HTTPException as refusal:
                return view.notice("The form was not read", refusal.detail, refusal.status_code)
            view.form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
            if not view.visitor.sent_form(view.form):
                return view.notice(
                    "The form has expired", "Load its page again, then send it.", 403
                )
        return await page(view)

    async def _file(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        body = await asyncio.to_thread((_FOLDER / name).read_bytes)
        return Response(
            body, headers=access.policy(secrets.token_urlsafe(16)), media_type=_FILES[name]
        )

    async def _live(self, view: View) -> Response:
        """Send an event whenever the session has grown."""

        async def events() -> AsyncIterator[bytes]:
            known, until = (
                view.number("turns"),
                asyncio.get_running_loop().time() + MOST_LIVE_SECONDS,
            )
            yield b": open\n\n"
            async with view.open() as opened:
                while not self._ending.is_set() and asyncio.get_running_loop().time() < until:
                    turns = len(await opened.store.turns(view.session))
                    if turns != known:
                        known = turns
                        yield f"event: turns\ndata: {turns}\n\n".encode()
                    try:
                        await asyncio.wait_for(self._ending.wait(), LIVE_SECONDS)
                    except TimeoutError:
                        yield b": still here\n\n"

        return StreamingResponse(
            events(), headers=access.policy(view.nonce), media_type="text/event-stream"
        )


async def _nothing(request: Request) -> Response:
    """Browsers ask for an icon by themselves."""
    del request
    return Response(status_code=204)


def stylesheet() -> str:
    """Return the stylesheet, for exported pictures."""
    return (_FOLDER / "inspector.css").read_text(encoding="utf-8")


def inspector_app(inspector: Inspector) -> Starlette:
    """Return the inspector as an application of its own."""
    return application(inspector.routes())
