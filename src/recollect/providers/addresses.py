"""Where a provider is reached: its own server, or another that speaks its wire.

Owns the rule for base URLs. Never shows what may be secret in one: a password before the host,
a key in the query.

The rule: with a version anywhere in its path (`/v1`, `/v1beta/openai`) a base URL is taken as it
is; without one, `/v1` is added. A trailing slash and a whole endpoint's path are forgiven.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from recollect.errors import ModelRefused

_VERSION: Final = re.compile(r"v\d+\w*")
_ENDPOINTS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server."""

    shown: str
    """Host and port, for errors."""
    own: bool
    """Whether it is the provider itself, which is known to take everything it documents."""
    _parts: SplitResult = field(repr=False)

    def url(self, path: str) -> str:
        """The whole address of an endpoint below the version, such as `/models`."""
        return urlunsplit(self._parts._replace(path=self._parts.path + path))

    def root_url(self, path: str) -> str:
        """The same beside the version: where llama.cpp has its `/props`."""
        head, _, last = self._parts.path.rpartition("/")
        kept = head if _VERSION.fullmatch(last) else self._parts.path
        return urlunsplit(self._parts._replace(path=kept + path))


def read_address(base_url: str | None, *, own: str) -> Address:
    """The server of this base URL; None, or the provider's own URL: the provider's own."""
    parts = _versioned(base_url or own)
    return Address(shown=_shown(parts), own=parts == _versioned(own), _parts=parts)


def _versioned(url: str) -> SplitResult:
    parts = _split(url.strip())
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        path = path.removesuffix(endpoint)
    if not any(_VERSION.fullmatch(segment) for segment in path.split("/")):
        path += "/v1"
    return parts._replace(path=path, fragment="")


def _split(url: str) -> SplitResult:
    parts: SplitResult | None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelRefused("the base URL of the model is no http:// or https:// address: mend it")
    return parts


def _shown(parts: SplitResult) -> str:
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
