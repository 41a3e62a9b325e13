"""The name of a PostgreSQL database, however its URL is spelled, as libpq reads it.

URLs of different databases have different names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_PORT = "5432"


def server_name(url: str, environment: Mapping[str, str]) -> str:
    """The servers of a URL, in its order, and the database on them."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=False))
    user, _, places = parts.netloc.rpartition("@")
    pairs = [_split(place) for place in places.split(",")] if places else []
    hosts = _several(options.get("host")) or [host for host, _ in pairs]
    ports = _several(options.get("port")) or [port for _, port in pairs]
    if not any(hosts):
        hosts = _several(environment.get("PGHOST")) or [""]
    if not any(ports):
        ports = _several(environment.get("PGPORT")) or [DEFAULT_PORT]
    if len(ports) == 1:  # one port is meant for all
        ports = ports * len(hosts)
    addresses = _several(options.get("hostaddr") or environment.get("PGHOSTADDR"))
    servers = [
        f"{_host(host)}:{port or DEFAULT_PORT}" for host, port in zip(hosts, ports, strict=False)
    ]
    named = [",".join(servers), *addresses]
    service = options.get("service") or environment.get("PGSERVICE")
    if service is not None:  # it may name any of these in a file of its own
        named.append(f"service={service}")
    return f"{'|'.join(named)}/{_database(parts.path, options, user, environment)}"


def _split(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        return unquote(host), port.removeprefix(":")
    host, _, port = place.partition(":")
    return unquote(host), port


def _several(listed: str | None) -> list[str]:
    return listed.split(",") if listed else []


def _host(host: str) -> str:
    return os.path.realpath(host) if host.startswith("/") else host.lower()


def _database(
    path: str, options: Mapping[str, str], user: str, environment: Mapping[str, str]
) -> str:
    named = (
        options.get("dbname") or unquote(path.removeprefix("/")) or environment.get("PGDATABASE")
    )
    if named:
        return named
    # without a name it is the user's own
    by_url = options.get("user") or unquote(user.partition(":")[0])
    return by_url or environment.get("PGUSER", "")
