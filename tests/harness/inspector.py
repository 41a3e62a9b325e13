"""A running inspector over this test's data folder, a visitor without a browser, and seeded
sessions."""

from __future__ import annotations

import asyncio
import html
import http.client
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.routing import Route

from recollect import open_memory
from recollect.hosts.http import BackgroundServer, HttpServer
from recollect.hosts.inspector.access import LocalAccess
from recollect.hosts.inspector.app import Inspector
from recollect.hosts.inspector.mounted import LocalInspector
from recollect.system.config import load_settings
from recollect.system.loopback import listen_on

FORM_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]+)"')


@dataclass(slots=True)
class Page:
    """An answer of the inspector."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def words(self) -> str:
        """The text that a reader sees."""
        plain = re.sub(r"<(script|style|title)\b.*?</\1>|<[^>]*>", " ", self.text, flags=re.DOTALL)
        return " ".join(html.unescape(plain).split())


@dataclass(slots=True)
class Visit:
    """A visitor with its cookie. It sends what a browser would send."""

    address: str
    link: str
    cookie: str = ""
    new_link: Callable[[], str] = str
    """Makes another link."""

    @property
    def root(self) -> str:
        """The path below which the link leads; none for a node of the service."""
        return urlsplit(self.link).path.rstrip("/")

    @property
    def pages(self) -> str:
        """The address below which the pages are."""
        return self.address + self.root

    def ask(self, path: str, form: Mapping[str, str] | None = None, /, **headers: str) -> Page:
        """Ask for a page below the root. Links of pages have it already."""
        path = path if path.startswith(f"{self.root}/") else self.root + path
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        sent = {"cookie": self.cookie} if self.cookie else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = None if form is None else urlencode(form)
        if form is not None:
            sent.setdefault("content-type", "application/x-www-form-urlencoded")
        try:
            connection.request("GET" if form is None else "POST", path, body, sent)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Page(answer.status, named, answer.read())
        finally:
            connection.close()

    def page(self, name: str = "", /, **given: object) -> Page:
        """Get a page that must exist."""
        named = {key: str(value) for key, value in given.items()}
        page = self.ask(f"/{name}?{urlencode(named)}")
        assert page.status == 200, f"{name}: {page.status}: {page.words[:600]}"
        return page

    def act(self, name: str, page: Page, /, **given: str) -> Page:
        """Send a form of a page, and follow it."""
        token = FORM_TOKEN.search(page.text)
        assert token, page.words[:600]
        done = self.ask(f"/{name}", {"form_token": token[1], **given})
        return self.ask(done.headers["location"]) if done.status == 303 else done

    def sign_in(self) -> Visit:
        entered = self.ask(self.link.removeprefix(self.address))
        assert entered.status == 200, entered.words
        self.cookie = entered.headers["set-cookie"].partition(";")[0]
        return self


@contextmanager
def inspector() -> Iterator[Visit]:
    """Run an inspector, and sign a visitor in."""
    shown = LocalInspector(load_settings().settings)
    server = HttpServer(shown, stop_seconds=1, on_stop=shown.end)
    with BackgroundServer(server, listen_on("127.0.0.1", 0, fix="")) as running:
        link = partial(shown.link, running.url)
        yield Visit(address=running.url, link=link(), new_link=link).sign_in()


FOREIGN: list[tuple[int, dict[str, str]]] = [
    *((421, {"host": host}) for host in ("evil.example", "evil.example:80", "")),
    *((421, {"host": host}) for host in ("127.0.0.1.evil.example", "localhost.evil.example")),
    *((403, {"sec_fetch_site": site}) for site in ("cross-site", "same-site", "evil")),
    *((403, {"origin": page}) for page in ("https://evil.example", "null", "http://127.0.0.1:1")),
    *((403, {"referer": page}) for page in ("https://evil.example/", "http://localhost:1/x", "[")),
    (403, {"referer": "http://[", "sec_fetch_site": "none"}),
]
"""Headers that a browser sends for pages of other sites, and the statuses of the refusals."""


def every_route() -> list[str]:
    """The paths of all routes of the inspector."""
    spaces: Any = None
    found = Inspector(LocalAccess(spaces).admit, load_settings().settings).routes()
    return [route.path for route in found if isinstance(route, Route)]


def said(role: str, text: str | list[Any]) -> dict[str, Any]:
    return {"role": role, "content": text}


def store_session(
    space: str,
    session: str,
    requests: Sequence[Sequence[Mapping[str, Any]]],
    *,
    after: Callable[[Any], Awaitable[object]] | None = None,
    model: Any = None,
    window_tokens: int | None = None,
    settings: Mapping[str, Any] | None = None,
    cached_tokens: int = 700,
) -> None:
    """Prepare these requests as turns of a session, in the memory of a space."""

    async def store() -> None:
        chosen = {"recall.embedder": "none", **(settings or {})}
        async with open_memory(
            space=space,
            settings=chosen,
            model=model,
            window_tokens=window_tokens,
            compact_in_background=False,
        ) as memory:
            for messages in requests:
                body = {"model": "claude-opus-4-5", "max_tokens": 500, "messages": [*messages]}
                await memory.prepare(session, body)
                usage = {"input_tokens": 900, "output_tokens": 20}
                usage["cache_read_input_tokens"] = cached_tokens
                await memory.observe(session, {"usage": usage})
            if after is not None:
                await after(memory)

    asyncio.run(store())
