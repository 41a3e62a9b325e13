"""What the HTTP driver may log of a request: its address without what may be secret in it.

The driver logs every request with its whole address, at a level that many programs show: a key in
the query, a password before the host. Other requests of the process are not touched.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


def hide_secrets(request: httpx.Request) -> httpx.Request:
    """The request, whose address is sent whole and shown without query and password."""
    request.url = _shown_in_part()(request.url)
    return request


@cache
def _shown_in_part() -> type[httpx.URL]:
    """Made when the driver is there: importing it takes long, and it is an extra."""
    import httpx

    class ShownInPart(httpx.URL):
        """An address whose text is for logs; the driver sends by its fields."""

        def __str__(self) -> str:
            return str(httpx.URL(self).copy_with(userinfo=b"", query=None))

    return ShownInPart
