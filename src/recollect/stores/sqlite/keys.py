"""The key of an encrypted space, and where it is kept.

Owns how a key is read and derived. It must never be logged, shown or written. Always holds: 64
hexadecimal digits, or 32 bytes that are said to be one, are a raw key and used as they are;
anything else is a passphrase, from which one key a space is derived once, so that opening stays
quick. The salt is the space's name, which is known wherever the file is opened: two spaces of one
name and passphrase have one key.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from hashlib import scrypt
from pathlib import Path
from typing import Any

from recollect.errors import MissingExtra, SettingsError

RAW_KEY_BYTES = 32
_RAW_HEX = re.compile(rb"[0-9a-fA-F]{64}")

# The cost that RFC 7914 names for interactive use: 16 MiB and about 50 ms, once.
_SCRYPT_COST = 1 << 14
_SCRYPT_BLOCK = 8
_SCRYPT_MEMORY_BYTES = 64 << 20


class EncryptionKey:
    """A raw key as 64 hexadecimal digits, or as 32 bytes with `raw`; else a passphrase."""

    __slots__ = ("_derived", "_raw", "_secret")

    def __init__(self, secret: bytes, *, raw: bool = False) -> None:
        if not secret:
            raise SettingsError("the encryption key is empty: give 64 hex digits or a passphrase")
        if not raw and _RAW_HEX.fullmatch(secret):
            secret, raw = bytes.fromhex(secret.decode()), True
        if raw and len(secret) != RAW_KEY_BYTES:
            raise SettingsError(f"a raw key has {RAW_KEY_BYTES} bytes, not {len(secret)}")
        self._secret = secret
        self._raw = raw
        self._derived: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return "EncryptionKey(...)"

    def raw(self, space: str) -> bytes:
        """The 32 bytes that encrypt this space; a passphrase gives each space another key."""
        if self._raw:
            return self._secret
        derived = self._derived.get(space)
        if derived is None:
            derived = self._derived[space] = scrypt(
                self._secret,
                salt=b"recollect-sqlite\0" + space.encode("utf-8", "surrogatepass"),
                n=_SCRYPT_COST,
                r=_SCRYPT_BLOCK,
                p=1,
                maxmem=_SCRYPT_MEMORY_BYTES,
                dklen=RAW_KEY_BYTES,
            )
        return derived


def read_key(source: str) -> EncryptionKey:
    """The key that `source` names: `env:NAME`, `file:PATH` or `keyring:SERVICE/NAME`.

    64 hexadecimal digits are a raw key, anything else is a passphrase.
    """
    kind, _, name = source.partition(":")
    reader = _READERS.get(kind)
    if reader is None or not name:
        raise SettingsError(
            "an encryption key is named as env:NAME, file:PATH or keyring:SERVICE/NAME"
        )
    text = reader(name).strip()
    if not text:
        raise SettingsError(f"there is no encryption key in {source}: put one there")
    return EncryptionKey(text.encode())


def _from_environment(name: str) -> str:
    return os.environ.get(name, "")


def _from_file(name: str) -> str:
    path = Path(name).expanduser()
    try:
        mode = path.stat().st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SettingsError(f"{path} can be read by others: chmod 600 it first")
        return path.read_text()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error


def _from_keyring(name: str) -> str:
    service, slash, user = name.rpartition("/")
    if not slash or not service or not user:
        raise SettingsError("a key of the keyring is named as keyring:SERVICE/NAME")
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        raise MissingExtra(feature="a key from the keyring", extra="encrypted") from error
    try:
        found: Any = keyring.get_password(service, user)
    except KeyringError as error:
        raise SettingsError(f"the keyring cannot be read: {type(error).__name__}") from error
    return found or ""


_READERS: dict[str, Callable[[str], str]] = {
    "env": _from_environment,
    "file": _from_file,
    "keyring": _from_keyring,
}
