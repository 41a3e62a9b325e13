"""One request of the API as its operation sees it, and the cursors of lists."""

from __future__ import annotations

import asyncio
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import msgspec

from recollect.core.engine.session import check_session_name
from recollect.core.ports import Store
from recollect.core.values.tenant import ApiKey, Tenant
from recollect.hosts.service.limits import Budgets
from recollect.hosts.service.memories import TenantMemories, TenantMemory
from recollect.hosts.service.problems import Problem, ProblemKind

NO_SPACE: Final = "the tenant has no space of this name"
_MARK_BYTES: Final = 12


class Cursors:
    """Cursors: the name of a list's next page, good for one list of one tenant.

    A cursor holds a position and a keyed hash over it and its list.
    """

    def __init__(self, secret: bytes) -> None:
        """`secret` is the same on all nodes of a service."""
        self._key = blake2b(secret, digest_size=32, person=b"recollect-page").digest()

    def write(self, position: Any, place: Sequence[str]) -> str:
        """The cursor of the page after a position."""
        told = msgspec.json.encode(position)
        return urlsafe_b64encode(self._mark(told, place) + told).rstrip(b"=").decode()

    def read(self, text: str, place: Sequence[str], kind: type) -> Any:
        """The position in a cursor; raises a Problem if it belongs to another list."""
        try:
            raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            mark, told = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
            if hmac.compare_digest(mark, self._mark(told, place)):
                position = msgspec.json.decode(told)
                if isinstance(position, kind):
                    return position
        except (NotBase64, ValueError):
            pass
        raise Problem(ProblemKind.BAD_REQUEST, "cursor: it belongs to another list; begin anew")

    def _mark(self, told: bytes, place: Sequence[str]) -> bytes:
        named = msgspec.json.encode([*place])
        return blake2b(told + b"\0" + named, key=self._key, digest_size=_MARK_BYTES).digest()


@dataclass(slots=True, kw_only=True)
class Call:
    """One request: its tenant, path, query and body."""

    tenant: Tenant
    key: ApiKey
    memories: TenantMemories
    budgets: Budgets
    cursors: Cursors
    route: str
    path: dict[str, str]
    query: Any
    body: Any
    now: float
    seconds: float
    """About what is left of its deadline."""
    writes: bool
    needs_space: bool = False
    """It writes only to a space that exists."""
    keyed: bool = False
    """It has an Idempotency-Key."""
    tokens: int = field(default=0)
    """Tokens of its input and of models, for the tenant's budget."""
    is_charged: bool = False

    @property
    def space(self) -> str:
        """The space's name."""
        return self.path["space"]

    @property
    def session(self) -> str:
        """The session in the path."""
        try:
            return check_session_name(self.path["session"])
        except ValueError as error:
            raise Problem(ProblemKind.INVALID, str(error)) from None

    @property
    def number(self) -> int:
        """The number in the path."""
        text = self.path["number"]
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise Problem(ProblemKind.NOT_FOUND, "a number stands at the end of this path")
        return int(text)

    @asynccontextmanager
    async def memory(self) -> AsyncIterator[TenantMemory]:
        """The memory of the space; to read, the space must exist."""
        records = await self.memories.records()
        if not self.writes and not await records.has_space(self.tenant.id, self.space):
            raise Problem(ProblemKind.NOT_FOUND, NO_SPACE)
        async with self.memories.memory(self.tenant.id, self.space) as memory:
            if self.writes and not memory.is_listed:
                if self.needs_space and not await records.has_space(self.tenant.id, self.space):
                    raise Problem(ProblemKind.NOT_FOUND, NO_SPACE)
                await records.add_space(self.tenant.id, self.space, at=self.now)
                memory.is_listed = True
            listing: asyncio.Task[None] | None = None
            try:
                yield memory
            finally:
                # It may have been deleted meanwhile: what was written is to be found, also where
                # it was cut off. Who was cut off does not wait for it.
                if self.writes:
                    listing = self.memories.beside(
                        records.add_space(self.tenant.id, self.space, at=self.now)
                    )
            if listing is not None:
                await asyncio.shield(listing)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """The store of the space, to read."""
        async with self.memory():
            yield await self.memories.store(self.tenant.id, self.space)

    def after(self, default: Any) -> Any:
        """The start of the page in the query."""
        if self.query.cursor is None:
            return default
        return self.cursors.read(self.query.cursor, self._place(), type(default))

    def cursor(self, position: Any) -> str:
        """The cursor of the page after this position."""
        return self.cursors.write(position, self._place())

    def _place(self) -> tuple[str, ...]:
        return (str(self.tenant.id), self.route, *self.path.values())
