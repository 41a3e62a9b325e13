"""Controls who may see the inspector's pages, and what a browser may do with them.

A page loads only the inspector's own scripts and styles, which carry the page's nonce. Requests for
other hosts and from pages of other sites are refused. The cookie is `SameSite=Strict`, and every
form has a token that is made from the cookie."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from recollect.hosts.http import FOREIGN_HOST, is_token
from recollect.system.loopback import is_own_host, names_host

if TYPE_CHECKING:
    from recollect.core.values.tenant import KeyScope
    from recollect.hosts.inspector.spaces import Spaces

TOKEN_SECONDS: Final = 600.0
"""A link's token works once, within this time."""
# Not measured: far more than the browsers of one user; bounds what is compared per request.
MAX_SIGNED_IN: Final = 64
ALL_SCOPES: Final[frozenset[KeyScope]] = frozenset(("read", "write", "forget"))
_COOKIE: Final = "recollect-inspector"
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_FIXED_HEADERS: Final = {
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
    return {**_FIXED_HEADERS, "content-security-policy": "; ".join(rules)}


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


def refusal_of(request: Request, public_hosts: Collection[str] | None) -> Response | None:
    """Return an answer that refuses a request for another host or from another site; else None. The
    public hosts are names under which a proxy serves the pages; None: only this machine's names."""
    host = request.headers.get("host", "")
    if not is_own_host(host, public_hosts):
        hint = "" if public_hosts is None else ", its IP address or, at a node, serve.public_hosts"
        return PlainTextResponse(FOREIGN_HOST + hint, 421)
    pages = filter(None, map(request.headers.get, ("origin", "referer")))
    is_own = all(names_host(page, host, public_hosts) for page in pages)
    if is_own and request.headers.get("sec-fetch-site", "none") in _OWN_SITES:
        return None
    return PlainTextResponse("links on other sites are refused: type or paste the address", 403)


class LocalAccess:
    """Admits browsers of this machine's user. A link's token works once, and gives a cookie. Its
    path contains a secret, because browsers send a cookie to all ports of a machine."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._tokens: dict[str, float] = {}
        self._cookies: dict[str, None] = {}

    def new_token(self) -> str:
        """Return a token for one link."""
        now = time.monotonic()
        self._tokens = {
            token_text: until for token_text, until in self._tokens.items() if until > now
        }
        token = secrets.token_urlsafe(24)
        self._tokens[token] = now + TOKEN_SECONDS
        return token

    async def admit(self, request: Request) -> Visitor | Response:
        token = request.query_params.get("token")
        if token is not None and request.method == "GET":
            return self._sign_in(request, token)
        cookie = request.cookies.get(_COOKIE, "")
        if any(is_token(cookie, valid_cookie) for valid_cookie in self._cookies):
            return Visitor(spaces=self._spaces, secret=cookie.encode())
        return self.refuse("This browser is not signed in.")

    def _sign_in(self, request: Request, token: str) -> Response:
        until = self._tokens.pop(token, 0.0)
        if until < time.monotonic():
            return self.refuse("This link was used before, or is too old.")
        cookie = secrets.token_urlsafe(32)
        self._cookies[cookie] = None
        while len(self._cookies) > MAX_SIGNED_IN:
            del self._cookies[next(iter(self._cookies))]
        # the cookie is strict: after a redirect from another site a browser would not send it
        home = f"{request.scope['root_path']}/"
        page = _plain_page(f'<p><a href="{home}">Open the inspector</a></p>', 200, home)
        page.set_cookie(_COOKIE, cookie, path=home, httponly=True, samesite="strict")
        page.headers["referrer-policy"] = "no-referrer"  # the page's address has the token
        return page

    def refuse(self, reason: str) -> Response:
        text = f"{reason} Run <code>recollect ui</code> in a terminal, and open the link it prints."
        return _plain_page(f"<main><h1>Sign in</h1><p>{text}</p></main>", 401)


def _plain_page(body: str, status: int, follow: str = "") -> Response:
    """Return a page without a visitor. With `follow`, the browser goes to that address."""
    refresh = f'<meta http-equiv="refresh" content="0;url={follow}">' if follow else ""
    title = "<title>Recollect inspector</title>"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8">{title}{refresh}'
    return answer(f"{head}{body}</html>", status)
