"""Listening sockets of Recollect's servers, and checks that a request comes from this machine.

A web page can send requests to every port of this machine, but cannot forge Host and Origin."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from recollect.errors import RecollectError

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
BACKLOG: Final = 2_048
"""Number of connections that may wait to be accepted, so that a burst of them is not refused."""


def listen_on(host: str, port: int, *, fix: str) -> socket.socket:
    """Open a listening socket. Raise RecollectError with the advice `fix` if the port is in use."""
    opened = bind_socket(host, port, fix=fix)
    opened.listen(BACKLOG)
    return opened


def bind_socket(host: str, port: int, *, fix: str) -> socket.socket:
    """Bind a socket that does not listen yet, so that clients are refused until its server is
    ready. Raise RecollectError with the advice `fix` if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
    except OSError as error:
        opened.close()
        raise RecollectError(
            f"port {port} of {host} cannot be used ({error.strerror}): {fix}, or stop what "
            "listens there"
        ) from error
    return opened


def address_of(opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def peer_user(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the user whose process has the other end of a local connection. Return None if the
    system does not report it (only Linux does), or the connection uses IPv6."""
    try:
        mine, theirs = (_as_kernel_writes(address) for address in (client, server))
        lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except (OSError, ValueError):
        return None
    for line in lines:
        fields = line.split()
        if fields[1:3] == [mine, theirs]:
            return int(fields[7])
    return None


def _as_kernel_writes(address: tuple[str, int]) -> str:
    packed = int.from_bytes(socket.inet_aton(address[0]), sys.byteorder)
    return f"{packed:08X}:{address[1]:04X}"


def host_of(address: str) -> str | None:
    """Return the host in an address such as `//host:port`; None if the address is invalid."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def names_this_machine(host: str) -> bool:
    """Return True if the header Host contains one of this machine's own names."""
    return host_of(f"//{host}") in LOOPBACK


def is_own_page(origin: str, *, served_as: str | None = None) -> bool:
    """Return True if Origin is empty, or names a page of this machine or of the requested host."""
    if not origin:
        return True
    named = host_of(origin) if origin.startswith(("http://", "https://")) else None
    return named is not None and (named in LOOPBACK or named == served_as)
