"""Gateway tokens, and the list of this user's running gateways. Every request must contain the
token, because other users of the machine can reach the gateway's port. A client sends the token in
the header `x-recollect-token`, or as the first part of the path, `/~TOKEN`. The gateway removes the
token before it forwards, records or logs a request."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from recollect.system.durable import own_secret
from recollect.system.places import data_home

TOKEN_VARIABLE: Final = "RECOLLECT_GATEWAY_TOKEN"  # noqa: S105 - its name
TOKEN_HEADER: Final = "x-recollect-token"  # noqa: S105 - its name
TOKEN_PATH: Final = "/~"  # noqa: S105 - what stands before it


def gateway_token_file() -> Path:
    """Return the file with `recollect gateway`'s token. RECOLLECT_GATEWAY_TOKEN overrides it."""
    return data_home() / "gateway" / "token"


def gateway_token() -> str:
    """Return the token that requests must contain: RECOLLECT_GATEWAY_TOKEN, or a random token from
    the data folder, created once."""
    return os.environ.get(TOKEN_VARIABLE) or own_secret(gateway_token_file())


def with_token(address: str, token: str) -> str:
    """Return the base URL with the token as its first path segment."""
    return f"{address}{TOKEN_PATH}{token}"


def without_token(path: str) -> tuple[str, str]:
    """Split a path, and return its rest and the token at its start, which may be empty."""
    if not path.startswith(TOKEN_PATH):
        return path, ""
    token, slash, path_rest = path.removeprefix(TOKEN_PATH).partition("/")
    return f"{slash}{path_rest}" or "/", token


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGateway:
    """A running gateway of this user, as its file describes it."""

    address: str
    token: str = field(repr=False)
    project: str
    agent: str = ""
    """The agent for which the gateway was started; empty for `recollect gateway`."""
    pid: int = field(default_factory=os.getpid)
    started_at: float = field(default_factory=time.time)


def _folder() -> Path:
    return data_home() / "gateway" / "running"


@contextmanager
def announce(gateway: RunningGateway) -> Iterator[None]:
    """Announce a gateway to this user's other processes while the block runs."""
    folder = _folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    port = gateway.address.rpartition(":")[2]
    file = folder / f"{gateway.pid}-{port}.json"
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        json.dump(asdict(gateway), out)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def running_gateways() -> tuple[RunningGateway, ...]:
    """List this user's gateways, newest first. Delete the files of gateways that have ended."""
    gateways: list[RunningGateway] = []
    for file in _folder().glob("*.json"):
        try:
            gateway = RunningGateway(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # the file is incomplete, or not from Recollect
        if _lives(gateway.pid):
            gateways.append(gateway)
        else:
            with suppress(OSError):
                file.unlink()
    return tuple(sorted(gateways, key=lambda gateway: gateway.started_at, reverse=True))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
