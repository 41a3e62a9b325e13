"""The MCP server on the nodes of a service. A request belongs to the tenant of its key and the
space in its path. Nodes keep no state between requests, so any node can answer any request. A tool
call is refused if the key lacks the tool's scope."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from mcp.server.request_state import RequestStateSecurity
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response

from recollect.hosts.mcp.server import server_over
from recollect.hosts.service.app import AnswerMcp
from recollect.hosts.service.keys import Principal
from recollect.hosts.service.memories import TenantMemories
from recollect.hosts.service.requests import collect

if TYPE_CHECKING:
    from recollect.core.engine.engine import Engine
    from recollect.core.values.tenant import KeyScope


_ASKED: Final[ContextVar[tuple[Engine, Principal]]] = ContextVar("recollect_asked_memory")
"""The memory of the current request, and who sent it."""


class RequestMemory:
    """Returns the memory that belongs to the current request."""

    session: str | None = None

    def __init__(self, memories: TenantMemories) -> None:
        self._memories = memories

    @contextlib.asynccontextmanager
    async def engine(self, scope: KeyScope = "read") -> AsyncIterator[Engine]:
        """Return the engine for the request's space. A tool that writes creates a missing space."""
        engine, principal = _ASKED.get()
        if scope == "read":
            yield engine
            return
        tenant, space = principal.tenant, principal.space
        async with self._memories.use(tenant, space, scope) as memory:
            yield memory.engine

    def refusal(self, scope: KeyScope) -> str:
        """Return why the key lacks this scope; empty if the key has it."""
        _, principal = _ASKED.get()
        if scope in principal.key.scopes:
            return ""
        return f"this needs a key with the scope {scope}"


@contextlib.asynccontextmanager
async def mcp_for_tenants(memories: TenantMemories, secret: bytes) -> AsyncIterator[AnswerMcp]:
    """Return the handler for paths that end in `/mcp`, while the block runs. `secret` is the same
    on all nodes, so that any node accepts the answer to another node's question."""
    key = blake2b(secret, digest_size=32, person=b"recollect-mcp").digest()
    server = server_over(
        RequestMemory(memories),
        RequestStateSecurity(keys=[key], bind_principal=_requester)
        if secret
        else RequestStateSecurity.ephemeral(),
    )
    manager = StreamableHTTPSessionManager(
        server,
        json_response=True,
        stateless=True,
        # the service has checked the key, and cookies grant no access
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def answer(request: Request, body: bytes, principal: Principal) -> Response:
        async with memories.memory(principal.tenant.id, principal.space) as memory:
            reset = _ASKED.set((memory.engine, principal))
            try:
                return await collect(manager.asgi_app, request, body)
            finally:
                _ASKED.reset(reset)

    async with manager.run():
        yield answer


def _requester(context: Any) -> str:
    del context
    _, principal = _ASKED.get()
    return f"{principal.tenant.id}/{principal.space}"
