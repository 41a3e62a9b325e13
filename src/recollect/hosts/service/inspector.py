"""The inspector for tenants. A browser sends the API key as the password of HTTP's basic
authentication, with any user name. The key decides which memories the user may see and change."""

from __future__ import annotations

import base64
import time
from binascii import Error
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from recollect.adapters.stores.postgres.tenants import audit_record
from recollect.core.values.tenant import tenant_space
from recollect.core.values.upkeep import SpaceSummary
from recollect.hosts.inspector.access import Visitor
from recollect.hosts.inspector.spaces import OpenSpace, UnknownSpace
from recollect.hosts.service.keys import Principal
from recollect.hosts.service.problems import Problem

if TYPE_CHECKING:
    from recollect.core.engine import Engine
    from recollect.hosts.service.memories import TenantMemories
    from recollect.system.config import Settings

MOST_SPACES: Final = 200  # not measured; bounds one page
CHALLENGE: Final = {"www-authenticate": 'Basic realm="Recollect: API key as password"'}


class TenantSpaces:
    """The memories of one tenant."""

    is_own_machine = False

    def __init__(
        self, principal: Principal, memories: TenantMemories, settings: Settings, *, acts: bool
    ) -> None:
        """Pass `acts=True` if the visitor sent a form, which may remove data."""
        self._acts = acts
        self._principal = principal
        self._memories = memories
        self.settings: Settings = settings
        self.where: str = f"tenant {principal.tenant.name}"

    async def summaries(self) -> tuple[SpaceSummary, ...]:
        records = await self._memories.records()
        space_records = await records.spaces(self._principal.tenant.id, limit=MOST_SPACES)
        return tuple(SpaceSummary(space=space_record.name) for space_record in space_records)

    @asynccontextmanager
    async def open(self, name: str) -> AsyncIterator[OpenSpace]:
        async with AsyncExitStack() as used:
            tenant = self._principal.tenant
            try:
                await self._memories.require(tenant.id, name)
            except Problem:
                raise UnknownSpace from None
            if self._acts:
                await used.enter_async_context(self._memories.use(tenant, name, "forget"))
            yield OpenSpace(
                space=tenant_space(tenant.id, name),
                store=await self._memories.store(tenant.id, name),
                settings=self.settings,
                has_files=False,
            )

    @asynccontextmanager
    async def engine(self, name: str) -> AsyncIterator[Engine]:
        tenant = self._principal.tenant
        async with self._memories.use(tenant, name, "write", creates=False) as memory:
            yield memory.engine

    async def note(self, act: str, name: str) -> None:
        records, principal = await self._memories.records(), self._principal
        key = f"key {principal.key.id}"
        await records.note(audit_record(principal.tenant.id, key, act, name, time.time()))


class KeyAccess:
    """Lets in a browser that sends a tenant's key."""

    def __init__(
        self,
        principal_of: Callable[[str], Awaitable[Principal]],
        memories: TenantMemories,
        settings: Settings,
    ) -> None:
        """Create the check. `principal_of` resolves an Authorization header, and counts the use."""
        self._principal_of = principal_of
        self._memories = memories
        self._settings = settings

    async def admit(self, request: Request) -> Visitor | Response:
        header = request.headers.get("authorization", "")
        try:
            principal = await self._principal_of(as_bearer(header))
        except Problem as problem:
            return PlainTextResponse(problem.reason, problem.kind.status)
        return Visitor(
            spaces=TenantSpaces(
                principal, self._memories, self._settings, acts=request.method == "POST"
            ),
            # a form's token can only be made with the key, and is the same on every node
            secret=blake2b(as_bearer(header).encode(), person=b"recollect-ui").digest(),
            scopes=frozenset(principal.key.scopes),
        )


def as_bearer(header: str) -> str:
    """Return an Authorization header that names the key of HTTP's basic authentication."""
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() != "basic":
        return header
    try:
        password = base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (Error, UnicodeDecodeError):
        return ""
    return f"Bearer {password}"
