"""The check that ids in a store are made with this process's secret (decision 0082).

Ids of stored messages cannot be computed again, because stored texts are redacted. So the secret
that keys a store's ids, its *data secret*, never changes. A PostgreSQL database contains it once
per value of RECOLLECT_SECRET that may open it, wrapped under that value, so a rotation changes one
row and no id. In a SQLite file, RECOLLECT_SECRET is the data secret, and the file has its hash."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b, scrypt
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from recollect.core.rules.identity import identify, space_secret
from recollect.core.values.message import Message, Text
from recollect.errors import SettingsError, WrongSecret

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.store import PostgresFleet, PostgresStore
    from recollect.adapters.stores.sqlite import SQLiteStore
    from recollect.core.ports import Store
    from recollect.core.values.history import SpaceId

OpenedT = TypeVar("OpenedT", bound="PostgresFleet | PostgresStore | SQLiteStore")

SECRET_VARIABLE: Final = "RECOLLECT_SECRET"  # noqa: S105 - the name of a variable
MIN_SECRET_CHARS: Final = 16
"""A shorter text is refused as a new secret. One guess takes 0.1 s, so 16 random ones hold."""
_SALT_BYTES, _HASH_BYTES, _DATA_BYTES = 16, 32, 128
"""A shorter data secret is padded, because its length would help to guess it."""
_SAMPLE: Final = 50
"""Number of spaces, and of messages in each, to compare. Not measured; bounds the first start."""
_MIN_TELLING: Final = 3
"""If so many messages have ids of another secret, and none has an id of this one, it is wrong. A
single message may have had several parts, or a secret that was masked. Not measured."""
DATA_SECRETS: Final[dict[tuple[str, bytes], bytes]] = {}
"""The data secret that this process uses, by URL and RECOLLECT_SECRET. It never changes, because
sessions in RAM and batches in the spool have ids made with it."""


def deployment_secret() -> bytes:
    """Read RECOLLECT_SECRET; it may be empty."""
    return os.environ.get(SECRET_VARIABLE, "").encode()


async def check_secret(store: OpenedT, url: str | None, *, draws: bool = False) -> OpenedT:
    """Return what was opened, or close it and raise WrongSecret."""
    from recollect.adapters.stores.sqlite import SQLiteStore

    try:
        if isinstance(store, SQLiteStore):
            await _check_file(store)
        else:
            fleet: Any = getattr(store, "fleet", store)
            await unlock(fleet, url or "", draws=draws)
    except BaseException:
        await store.close()
        raise
    return store


async def shows_secret(store: Store, url: str | None) -> bool:
    """Return whether a record, or the oldest message, shows that this secret made the ids of a
    store; raise WrongSecret if another secret made them. An empty store shows and records none."""
    from recollect.adapters.stores.sqlite import SQLiteStore

    opened: Any = store
    is_file = isinstance(store, SQLiteStore)
    record = await (opened.secret_mark() if is_file else opened.fleet.secret_records())
    comparison = await _compare_ids(store, deployment_secret())
    if record or comparison.messages:
        await check_secret(opened, url)
    return bool(record) or comparison.oldest_fits


async def unlock(
    fleet: PostgresFleet, url: str, *, draws: bool = False, compares: bool = True
) -> bytes:
    """Return the data secret of a database, or raise WrongSecret. If none is recorded, record it:
    RECOLLECT_SECRET if stored messages fit it (unless `compares` is false), or with `draws`, in a
    database without messages, a random secret, which no leaked RECOLLECT_SECRET reveals."""
    secret = deployment_secret()
    if not (records := await fleet.secret_records()):
        spaces = await fleet.spaces()
        if compares:
            await _compare(fleet, spaces, secret)
        makes_secret = draws and not spaces and secret.strip()
        data = secrets.token_hex(32).encode() if makes_secret else secret
        await fleet.add_secret_record(0, _wrap(data, secret))
        records = await fleet.secret_records()
    data_secret = await asyncio.to_thread(_open, records.values(), secret)
    if data_secret is None:
        raise _wrong_secret("this database")
    if DATA_SECRETS.setdefault((url, secret), data_secret) != data_secret:
        raise WrongSecret(
            f"this process started while the database was down, and {SECRET_VARIABLE} alone does "
            "not give its ids: start it again"
        )
    return data_secret


async def _check_file(store: SQLiteStore) -> None:
    """Raise WrongSecret if ids in this file were made with another RECOLLECT_SECRET. A file without
    a hash gets one, unless its messages do not show with which secret they were stored."""
    secret = deployment_secret()
    mark, known_mark = space_secret("ids", secret), await store.secret_mark()
    if known_mark is None:
        comparison = await _compare_ids(store, secret)
        if comparison.is_right:
            known_mark = await store.secret_mark(first=mark)
        elif (comparison.fitting or comparison.messages < _MIN_TELLING) and not (
            secret and (await _compare_ids(store, b"")).fitting
        ):
            return
    if known_mark != mark:
        raise _wrong_secret(str(store.path))


def _wrong_secret(place: str) -> WrongSecret:
    is_set = "is not the one" if deployment_secret() else "is not set, but was"
    return WrongSecret(
        f"{SECRET_VARIABLE} {is_set} with which {place} was filled, so forgotten messages would "
        "come back, and histories would be stored twice: set it as it was"
    )


async def _compare(fleet: PostgresFleet, spaces: Sequence[SpaceId], secret: bytes) -> None:
    sample = spaces[:: max(1, len(spaces) // _SAMPLE)]
    comparisons = [await _compare_ids(await fleet.space(name), secret) for name in sample]
    fitting = [ids.fitting > 0 for ids in comparisons if ids.messages]
    if fitting and 2 * sum(fitting) <= len(fitting):
        raise WrongSecret(
            f"{SECRET_VARIABLE} fits the oldest messages of only {sum(fitting)} in {len(fitting)} "
            "spaces: set the secret of the running nodes. If this is the one, run `recollect db "
            "secret` with it"
        )


class _ComparedIds(NamedTuple):
    """How many of the oldest plain messages there are, and how many ids are from a secret."""

    messages: int
    fitting: int
    oldest_fits: bool

    @property
    def is_right(self) -> bool:
        """Return whether the secret made the ids, or no message can tell. Messages that a wrong
        secret stored later do not make it the right one, however many they are."""
        return not self.messages or self.oldest_fits


async def _compare_ids(store: Store, secret: bytes) -> _ComparedIds:
    """Compare the ids of the oldest messages with those that this secret gives. A message that was
    redacted, or has several parts, has another id."""
    key = space_secret(store.space, secret)
    segments = [stored_segment.segment for stored_segment in await store.page(limit=_SAMPLE)]
    plain = [
        segment
        for segment in segments
        if segment.role in ("user", "assistant") and not segment.tool
    ]
    fits = [
        segment.message_id
        == identify(Message(role=segment.role, parts=(Text(text=segment.text),), raw=b""), key)
        for segment in plain
    ]
    return _ComparedIds(len(fits), sum(fits), fits[:1] == [True])


async def change_secrets(
    fleet: PostgresFleet, url: str, *, accept: bytes | None, retire: bool
) -> int:
    """Accept only RECOLLECT_SECRET with `retire`, and then one more secret. Return how many secrets
    the database accepts."""
    data, secret = await unlock(fleet, url, compares=False), deployment_secret()
    records = await fleet.secret_records()
    if retire:
        closed_records = [record for record in records.values() if _open((record,), secret) is None]
        await fleet.drop_secret_records(closed_records)
    records = await fleet.secret_records()
    while accept is not None and _open(records.values(), accept) is None:
        if len(accept.strip()) < MIN_SECRET_CHARS:
            raise SettingsError(
                f"a secret must have at least {MIN_SECRET_CHARS} characters: use the output of "
                "`openssl rand -hex 32`"
            )
        # another operator may take the same number at the same moment: then take the next one
        await fleet.add_secret_record(max(records) + 1, _wrap(data, accept))
        records = await fleet.secret_records()
    return len(records)


def _wrap(data: bytes, secret: bytes) -> bytes:
    """Encrypt a data secret and its hash with bytes that are derived from another secret and a new
    salt, so that they are used once. Without a secret, the record is empty."""
    if not secret.strip():
        return b""
    salt, data = os.urandom(_SALT_BYTES), data.ljust(_DATA_BYTES, b"\0")
    return salt + _xor(blake2b(data, digest_size=_HASH_BYTES).digest() + data, secret, salt)


def _open(records: Collection[bytes], secret: bytes) -> bytes | None:
    """Return the data secret in the record that this secret opens; None if it opens no record."""
    if not secret.strip():
        return b"" if b"" in records else None
    for record in filter(None, records):
        plain_record = _xor(record[_SALT_BYTES:], secret, record[:_SALT_BYTES])
        data = plain_record[_HASH_BYTES:]
        if blake2b(data, digest_size=_HASH_BYTES).digest() == plain_record[:_HASH_BYTES]:
            return data.rstrip(b"\0")
    return None


@lru_cache(64)
def _xor(content: bytes, secret: bytes, salt: bytes) -> bytes:
    """Encrypt or decrypt with slowly derived bytes (0.1 s, 16 MB), so that a record does not help
    to guess a secret. Whitespace around a secret does not count: many secret files end with it."""
    size = len(content)
    pad = scrypt(secret.strip(), salt=salt, n=2**14, r=8, p=1, maxmem=2**26, dklen=size)
    return bytes(x ^ y for x, y in zip(content, pad, strict=True))
