"""Sessions and receipts as MCP resources: what there is, and what each holds.

`recollect://session/NAME` is what was said in a session, as memory keeps it; a receipt,
`recollect://receipt/NAME/NUMBER`, is what `recollect receipt --json` prints. Names are escaped, so
that any name is one part of an address; an address is looked up in the store, never on the disk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from recollect.core.formats.json_text import when
from recollect.core.values.recall import FILE_SESSIONS
from recollect.errors import RecollectError
from recollect.hosts.inspect.receipts import read_receipts
from recollect.hosts.inspect.sessions import SessionLine, stored_sessions
from recollect.hosts.mcp.definitions import SCHEME
from recollect.hosts.tools.answers import framed, indented, message_line

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.ports import Store
    from recollect.core.values.segment import StoredSegment

_PAGE: Final = 100
"""Sessions on a page of the list."""
_MOST_MESSAGES: Final = 500
_MOST_CHARS: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """A resource as a list shows it."""

    uri: str
    name: str
    description: str
    mime_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceText:
    """What a resource holds."""

    text: str = field(repr=False)
    mime_type: str


class Resources:
    """What a memory shows as resources."""

    def __init__(self, engine: Engine, session: str | None) -> None:
        """With a `session` this one alone, unless `recall.scope` makes all one memory."""
        self._engine = engine
        self._only = None if engine.settings.recall.scope == "space" else session

    async def listed(self, cursor: str) -> tuple[list[ListedResource], str | None]:
        """A page of the list, the newest sessions first, and where the next begins."""
        if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise RecollectError("there is no such page.")
        begin = int(cursor or 0)

        async def read(store: Store) -> tuple[list[ListedResource], str | None]:
            lines = await stored_sessions(store)
            sessions = [one for one in lines if self._reaches(one.session_id)]
            found: list[ListedResource] = []
            for one in sessions[begin : begin + _PAGE]:
                found.append(_session_resource(one))
                found += [
                    _receipt_resource(one.session_id, record.number, record.at)
                    for record in await store.compactions(one.session_id)
                ]
            more = begin + _PAGE < len(sessions)
            return found, str(begin + _PAGE) if more else None

        return await self._engine._look_up(read)

    async def read(self, uri: str) -> ResourceText:
        """What stands under this address; RecollectError where nothing does."""
        kind, _, rest = uri.removeprefix(SCHEME).partition("/")
        parts = [unquote(part, errors="replace") for part in rest.split("/")]
        if uri.startswith(SCHEME) and all(parts) and self._reaches(parts[0]):
            if kind == "session" and len(parts) == 1:
                return await self._session(parts[0])
            if kind == "receipt" and len(parts) == 2 and _is_number(parts[1]):
                return await self._receipt(parts[0], int(parts[1]))
        raise _missing()

    def _reaches(self, session: str) -> bool:
        return self._only in (None, session) and not session.startswith(FILE_SESSIONS)

    async def _session(self, session: str) -> ResourceText:
        async def read(store: Store) -> tuple[StoredSegment, ...]:
            return await store.page(session=session, limit=_MOST_MESSAGES, descending=True)

        newest = await self._engine._look_up(read)
        if not newest:
            raise _missing()
        told: list[str] = []
        room = _MOST_CHARS
        for one in newest:  # the newest are shown whatever there is
            text = f"{message_line(one, session)}\n{indented(one.segment.text)}"
            room -= len(text)
            if told and room < 0:
                break
            told.insert(0, text[:_MOST_CHARS])
        if len(told) < len(newest) or len(newest) == _MOST_MESSAGES:
            told.insert(0, "(older messages are left out; memory_search finds them)")
        return ResourceText(text=framed(told), mime_type="text/plain")

    async def _receipt(self, session: str, number: int) -> ResourceText:
        found = await self._engine._look_up(lambda store: read_receipts(store, session))
        if number not in [record.number for record in found.records]:
            raise _missing()
        page = found.page(number).as_json()
        text = json.dumps(page, ensure_ascii=False, indent=2, default=str)
        return ResourceText(text=text, mime_type="application/json")


def _session_resource(session: SessionLine) -> ListedResource:
    return ListedResource(
        uri=f"{SCHEME}session/{_escaped(session.session_id)}",
        name=session.session_id,
        description=f"{session.messages:,} messages, the last of {when(session.changed)}",
        mime_type="text/plain",
    )


def _receipt_resource(session: str, number: int, at: float) -> ListedResource:
    return ListedResource(
        uri=f"{SCHEME}receipt/{_escaped(session)}/{number}",
        name=f"{session}, compaction {number}",
        description=f"Receipt of a compaction, {when(at)}",
        mime_type="application/json",
    )


def _escaped(name: str) -> str:
    return quote(name, safe="", errors="replace")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _missing() -> RecollectError:
    return RecollectError("there is no such resource; resources/list shows those that there are.")
