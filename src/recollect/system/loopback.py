"""Listening sockets of Recollect's servers, and checks that a request comes from this machine.

A web page can send requests to every port of this machine, but cannot forge Host and Origin."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from recollect.errors import RecollectError

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_OF_THIS_MACHINE: Final = ("localhost", "host.docker.internal", "host.containers.internal")
"""Names of this machine, two of them as its containers write it."""
BACKLOG: Final = 2_048
"""Number of connections that may wait to be accepted, so that a burst of them is not refused."""


def listen_on(host: str, port: int, *, fix: str) -> socket.socket:
    """Open a listening socket. Raise RecollectError with the advice `fix` if the port is in use."""
    listening_socket = bind_socket(host, port, fix=fix)
    listening_socket.listen(BACKLOG)
    return listening_socket


def bind_socket(host: str, port: int, *, fix: str) -> socket.socket:
    """Bind a socket that does not listen yet, so that clients are refused until its server is
    ready. Raise RecollectError with the advice `fix` if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound_socket = socket.socket(family, socket.SOCK_STREAM)
    bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound_socket.bind((host, port))
    except OSError as error:
        bound_socket.close()
        raise RecollectError(
            f"port {port} of {host} cannot be used ({error.strerror}): {fix}, or stop what "
            "listens there"
        ) from error
    return bound_socket


def address_of(listening_socket: socket.socket) -> str:
    host, port = listening_socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def peer_user(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the user whose process has the other end of a local connection, or -1 if the process
    has closed it. Return None for other machines, and on systems other than Linux."""
    try:
        client_text, server_text = (_as_kernel_writes(address) for address in (client, server))
        files = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
        tables = [file.read_text(encoding="ascii") for file in files if file.exists()]
    except (OSError, ValueError):
        return None
    rows = [line.split() for line in "".join(tables).splitlines() if ":" in line]
    for fields in rows:
        # an IPv4 address also ends the form that tcp6 has of it
        if fields[1].endswith(client_text) and fields[2].endswith(server_text):
            return int(fields[7]) if fields[9] != "0" else -1
    # tables without rows are of a system that does not fill them, such as version 1 of WSL
    return -1 if rows and client[0].removeprefix("::ffff:").startswith(("127.", "::1")) else None


def _as_kernel_writes(address: tuple[str, int]) -> str:
    host = address[0].removeprefix("::ffff:")
    address_bytes = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = (address_bytes[start : start + 4] for start in range(0, len(address_bytes), 4))
    host_text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{host_text}:{address[1]:04X}"


def host_of(address: str) -> str | None:
    """Return the host in an address such as `//host:port`; None if the address is invalid."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host is; None if it is a name."""
    with suppress(ValueError):
        return ip_address(host)
    return None


def is_this_machine(host: str) -> bool:
    """Return True if only this machine's own servers can be meant by this host."""
    address = ip_of(host)
    if address is not None:
        return address.is_loopback or address.is_unspecified
    return host in _OF_THIS_MACHINE or host.endswith(".localhost")


def is_own_host(host: str, public_hosts: Collection[str] | None = None) -> bool:
    """Return True if the header Host contains a name of this machine or, unless `public_hosts` is
    None, one of these or an IP address. A web page can give an address to names of its own only."""
    name = host_of(f"//{host}") or ""
    if name in LOOPBACK or public_hosts is None:
        return name in LOOPBACK
    return name in public_hosts or ":" in name or name.replace(".", "").isdecimal()


def names_host(address: str, host: str, public_hosts: Collection[str] | None) -> bool:
    """Return True if a page's address (Origin or Referer) has the requested or a public host."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.netloc == host or parts.hostname in (public_hosts or ())


def is_own_page(origin: str, *, served_as: str | None = None) -> bool:
    """Return True if Origin is empty, or names a page of this machine or of the requested host."""
    if not origin:
        return True
    page_host = host_of(origin) if origin.startswith(("http://", "https://")) else None
    return page_host is not None and (page_host in LOOPBACK or page_host == served_as)
