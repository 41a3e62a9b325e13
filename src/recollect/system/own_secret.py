"""A secret in a file that only this user can read, made when it is first needed.

Tokens of servers on this machine and the key of this installation's hashes are such secrets.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from recollect.errors import RecollectError
from recollect.system.durable import create_file

_BYTES: Final = 32


def own_secret(file: Path) -> str:
    """The secret in this file, which is created if it is missing (mode 0600).

    Two processes that start at once get the same secret. RecollectError if the file is empty, or
    if other users can read it.
    """
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_file(file, secrets.token_urlsafe(_BYTES).encode())
    secret = file.read_text(encoding="ascii", errors="replace").strip()
    if not secret:
        raise RecollectError(f"{file} is empty: remove it, and Recollect writes a new one")
    if os.name == "posix" and file.stat().st_mode & 0o077:
        raise RecollectError(
            f"other users can read {file}: remove it, and Recollect writes a new one"
        )
    return secret
