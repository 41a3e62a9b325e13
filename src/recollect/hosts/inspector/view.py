"""One request for a page: its parameters, the addresses of other pages, and its template."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from recollect.core.formats.json_text import when
from recollect.core.values.report import FateKind
from recollect.core.values.segment import SPEAKERS
from recollect.errors import RecollectError
from recollect.hosts.inspect import svg
from recollect.hosts.inspect.timeline import (
    EVENT_WORDS,
    SHOWN_KINDS,
    TimelineReader,
    TurnSizes,
    cache_share,
    cost_of,
    dollars,
)
from recollect.hosts.inspect.turns import MessageFate, Stretch, format_excerpt
from recollect.hosts.inspector import access
from recollect.hosts.inspector.access import Visitor
from recollect.hosts.inspector.spaces import OpenSpace
from recollect.system.plain_text import number_of, plain_line, short_tokens, size_text

FOLDER: Final = Path(__file__).parent / "templates"
Page: TypeAlias = "Callable[[PageView], Awaitable[Response]]"
Row = TypeVar("Row")
FATE_SIGNS: Final[Mapping[FateKind, tuple[str, str]]] = {
    "kept": ("kept", "Kept"),
    "changed": ("shortened", "Shortened"),
    "left out": ("dropped", "Dropped"),
    "summarized": ("summarized", "Summarized"),
    "inserted": ("inserted", "Inserted"),
}
"""The style and the word of each outcome."""


def outcome_sign(outcome: MessageFate | Stretch) -> tuple[str, str]:
    """Return the style and the word of an outcome. A changed message may have gained a block."""
    if outcome.fate == "changed" and outcome.tokens_after > outcome.tokens_before:
        return "inserted", "Extended"
    return FATE_SIGNS[outcome.fate]


def page_templates() -> Environment:
    """Return the templates. Every value is escaped."""
    environment = Environment(
        loader=PackageLoader(__package__ or ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        n=lambda value: f"{value:,}",
        line=plain_line,
        when=when,
        short=short_tokens,
        dollars=dollars,
        size=size_text,
        shown=format_excerpt,
        cap=lambda text: text[:1].upper() + text[1:],
        share=lambda part, whole: f"{part / max(1, whole):.0%}",
        fullness=_fullness,
        drawing=Markup,  # only for pictures of `svg`, which escapes its texts
    )
    environment.globals.update(
        number_of=number_of,
        outcome_sign=outcome_sign,
        speakers=SPEAKERS,
        event_words=EVENT_WORDS,
        kinds_shown=SHOWN_KINDS,
        draw_bar=svg.bar,
        draw_spark=svg.spark,
        cache_share=cache_share,
        cost_of=cost_of,
    )
    return environment


def _fullness(sizes: TurnSizes) -> str:
    """Return the style of a figure that shows how full the window is."""
    part = sizes.sent_tokens / max(1, sizes.limit_tokens)
    return "bad" if part > 1 else "warn" if part > 0.9 else "ok"


@dataclass(slots=True)
class PageView:
    """One request for a page."""

    templates: Environment
    timelines: TimelineReader
    request: Request
    visitor: Visitor
    form: Mapping[str, str] = field(default_factory=dict, repr=False)
    nonce: str = field(default_factory=partial(secrets.token_urlsafe, 16))
    newer: str = ""
    """Address of the list's previous page, with newer entries; empty on the first page."""
    older: str = ""

    def parameter(self, name: str) -> str:
        """Return a parameter of the form or the address; empty if it is missing."""
        return self.form.get(name, self.request.query_params.get(name, ""))

    def number(self, name: str) -> int:
        """Return a parameter as a whole number; 0 if it is missing."""
        text = self.parameter(name).strip() or "0"
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise RecollectError(f"{name} must be a whole number, not {plain_line(text)!r}")
        return int(text)

    @property
    def space(self) -> str:
        return self.parameter("space")

    @property
    def session(self) -> str:
        return self.parameter("session")

    async def spaces(self) -> list[str]:
        """Return the names of the memories, and choose the one used last if none is named."""
        names = [
            summary.space for summary in await self.visitor.spaces.summaries() if summary.space
        ]
        if not self.space and names:
            self.form = {**self.form, "space": names[0]}
        return names

    def open(self, name: str = "") -> AbstractAsyncContextManager[OpenSpace]:
        return self.visitor.spaces.open(name or self.space)

    def link(self, page: str = "", /, **values: object) -> str:
        """Return the address of a page."""
        parameters = {name: str(value) for name, value in values.items() if value not in (None, "")}
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"{self.request.scope.get('root_path', '')}/{page}{query}"

    def session_link(self, page: str, /, **values: object) -> str:
        """Return the address of a page of this session."""
        return self.link(page, **{"space": self.space, "session": self.session, **values})

    def page_of(
        self, rows: Sequence[Row], size: int, page: str, /, **values: object
    ) -> Sequence[Row]:
        """Return the rows of the requested page, and set the links to the pages next to it."""
        page_number = self.number("page")
        if page_number:
            self.newer = self.session_link(page, **values, page=page_number - 1 or "")
        if (page_number + 1) * size < len(rows):
            self.older = self.session_link(page, **values, page=page_number + 1)
        return rows[page_number * size : (page_number + 1) * size]

    def render(self, template: str, status: int = 200, /, **values: object) -> Response:
        """Render a page. A template sees `view` and these values."""
        text = self.templates.get_template(template).render(
            view=self, link=self.link, here=self.session_link, **values
        )
        return access.answer(text, status, nonce=self.nonce)

    def notice(self, title: str, text: str, status: int = 200, **values: object) -> Response:
        """Render a page with one message."""
        return self.render("notice.html", status, title=title, text=text, **values)
