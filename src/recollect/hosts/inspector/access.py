"""Controls who may see the inspector's pages, and what a browser may do with them.

A page loads only the inspector's own scripts and styles, which carry the page's nonce. Pages of
other origins can neither read a page nor send a form: the header Host must name this machine, the
cookie is `SameSite=Strict`, and every form has a token that is made from the cookie."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from recollect.hosts.http import is_token
from recollect.system.loopback import names_this_machine

if TYPE_CHECKING:
    from recollect.core.values.tenant import KeyScope
    from recollect.hosts.inspector.spaces import Spaces

TOKEN_SECONDS: Final = 600.0
"""A link's token works once, within this time."""
MOST_SIGNED_IN: Final = 64
ALL_SCOPES: Final[frozenset[KeyScope]] = frozenset(("read", "write", "forget"))
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_STANDING: Final = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


def policy(nonce: str) -> dict[str, str]:
    """Return the headers of a page. Only styles and scripts with the nonce load, and no request
    leaves the inspector."""
    rules = (
        "default-src 'none'",
        f"style-src 'nonce-{nonce}'",
        f"script-src 'nonce-{nonce}'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types recollect",
    )
    return {**_STANDING, "content-security-policy": "; ".join(rules)}


def answer(text: str, status: int = 200, *, nonce: str = "") -> Response:
    """Answer with a page."""
    return HTMLResponse(text, status, policy(nonce or secrets.token_urlsafe(16)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A browser that may see pages, with its memories and scopes."""

    spaces: Spaces
    secret: bytes = field(repr=False)
    scopes: frozenset[KeyScope] = ALL_SCOPES

    @property
    def form_token(self) -> str:
        """The token that every form of this visitor carries."""
        return hmac.new(self.secret, b"recollect-form", sha256).hexdigest()


Access: TypeAlias = "Callable[[Request], Awaitable[Visitor | Response]]"
"""Returns the visitor, or the answer that refuses the request."""


def foreign(request: Request) -> Response | None:
    """Return an answer that refuses a request from a page of another origin; else None."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if request.method == "GET" and origin is None:
        return None
    site = request.headers.get("sec-fetch-site", "same-origin")
    if (origin is None or urlsplit(origin).netloc == host) and site in _OWN_SITES:
        return None
    return PlainTextResponse("requests from pages of other origins are refused", 403)


class LocalAccess:
    """Admits browsers of this machine's user. A link's token works once, and gives a cookie."""

    def __init__(self, spaces: Spaces, *, local: bool = True) -> None:
        """With `local`, refuse requests whose Host header does not name this machine."""
        self._spaces = spaces
        self._local = local
        self._tokens: dict[str, float] = {}
        self._cookies: dict[str, None] = {}

    def new_token(self) -> str:
        """Return a token for one link."""
        now = time.monotonic()
        self._tokens = {one: until for one, until in self._tokens.items() if until > now}
        token = secrets.token_urlsafe(24)
        self._tokens[token] = now + TOKEN_SECONDS
        return token

    async def admit(self, request: Request) -> Visitor | Response:
        if self._local and not names_this_machine(request.headers.get("host", "")):
            text = "the Host header must name this machine, such as localhost"
            return PlainTextResponse(text, 421)
        if (refusal := foreign(request)) is not None:
            return refusal
        token = request.query_params.get("token")
        if token is not None and request.method == "GET":
            return self._sign_in(request, token)
        cookie = request.cookies.get(_cookie_name(request), "")
        if any(is_token(cookie, known) for known in self._cookies):
            return Visitor(spaces=self._spaces, secret=cookie.encode())
        return self._closed("This browser is not signed in.")

    def _sign_in(self, request: Request, token: str) -> Response:
        until = self._tokens.pop(token, 0.0)
        if until < time.monotonic():
            return self._closed("This link was used before, or is too old.")
        cookie = secrets.token_urlsafe(32)
        self._cookies[cookie] = None
        while len(self._cookies) > MOST_SIGNED_IN:
            del self._cookies[next(iter(self._cookies))]
        # the cookie is strict: after a redirect from another site a browser would not send it
        home = f"{request.scope.get('root_path', '')}/"
        page = _plain_page(f'<p><a href="{home}">Open the inspector</a></p>', 200, home)
        page.set_cookie(_cookie_name(request), cookie, path=home, httponly=True, samesite="strict")
        return page

    def _closed(self, reason: str) -> Response:
        text = f"{reason} Run <code>recollect ui</code> in a terminal, and open the link it prints."
        return _plain_page(f"<main><h1>Sign in</h1><p>{text}</p></main>", 401)


def _plain_page(body: str, status: int, follow: str = "") -> Response:
    """Return a page without a visitor. With `follow`, the browser goes to that address."""
    refresh = f'<meta http-equiv="refresh" content="0;url={follow}">' if follow else ""
    title = "<title>Recollect inspector</title>"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8">{title}{refresh}'
    return answer(f"{head}{body}</html>", status)


def _cookie_name(request: Request) -> str:
    """Return the cookie's name. Browsers share cookies between the ports of a machine."""
    return f"recollect-{request.url.port or 80}"
