"""One request for a page: its parameters, the addresses of other pages, and its template."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from recollect.core.formats.json_text import when
from recollect.hosts.inspect import svg
from recollect.hosts.inspect.timeline import TimelineReader, dollars
from recollect.hosts.inspect.turns import shown_text
from recollect.hosts.inspector import access
from recollect.hosts.inspector.access import Visitor
from recollect.hosts.inspector.spaces import OpenSpace
from recollect.system.plain_text import number_of, plain_line, size_text

FOLDER: Final = Path(__file__).parent / "templates"
Page: TypeAlias = "Callable[[PageView], Awaitable[Response]]"


def page_templates() -> Environment:
    """Return the templates. Every value is escaped."""
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


@dataclass(slots=True)
class PageView:
    """One request for a page."""

    templates: Environment
    timelines: TimelineReader
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
        text = self.templates.get_template(template).render(
            view=self, link=self.link, here=self.here, **values
        )
        return access.answer(text, status, nonce=self.nonce)

    def notice(self, title: str, text: str, status: int = 200, **values: object) -> Response:
        """Render a page with one message."""
        return self.render("notice.html", status, title=title, text=text, **values)

    def go(self, address: str) -> Response:
        """Send the browser to another page after a form."""
        return RedirectResponse(address, 303, access.policy(self.nonce))


def stylesheet() -> str:
    """Return the stylesheet, for exported pictures."""
    return (FOLDER / "inspector.css").read_text(encoding="utf-8")
