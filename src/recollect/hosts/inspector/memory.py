"""The pages of a memory: search, facts, forgetting, redaction and health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from recollect.core.values.tenant import KeyScope

if TYPE_CHECKING:
    from recollect.hosts.inspector.app import Page

PAGES: Final[dict[str, Page]] = {}
ACTIONS: Final[dict[str, tuple[KeyScope, Page]]] = {}
