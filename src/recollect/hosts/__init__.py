"""Programs that use a memory: gateway, hooks, daemon, MCP, service, memory tools, inspection."""

from __future__ import annotations

_SERVER = ("httptools", "starlette", "uvicorn")
_NEEDS = {
    "gateway": ("the gateway", (*_SERVER, "aiohttp", "brotli")),
    "hooks": ("the daemon", _SERVER),
    "mcp": ("the MCP server", (*_SERVER, "mcp")),
    "ui": ("the inspector", (*_SERVER, "jinja2")),
    "serve": ("the service", (*_SERVER, "prometheus_client")),
}


def require_extra(extra: str) -> None:
    """Raise MissingExtra if a package of this extra is missing, before a server is imported."""
    from importlib.util import find_spec

    from recollect.errors import MissingExtra

    feature, packages = _NEEDS[extra]
    if any(find_spec(package) is None for package in packages):
        raise MissingExtra(feature=feature, extra=extra)
