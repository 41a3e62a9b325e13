"""The folder of all data, for hooks, which must start fast: an agent waits for them.

This module imports only Recollect's errors: importing `platformdirs` takes longer than a hook."""

from __future__ import annotations

import os
import sys

_USUAL = {
    "darwin": "~/Library/Application Support/recollect",
    "linux": "~/.local/share/recollect",
}


def absolute_path(variable: str, value: str) -> str:
    """Read the path in a variable, with `~` expanded. Raise SettingsError for a relative path,
    which would name a file in the current folder: that may be a cloned repository."""
    path = os.path.expanduser(value)  # noqa: PTH111 - pathlib is slow to import
    if os.path.isabs(path):  # noqa: PTH117
        return path
    from recollect.errors import SettingsError

    full_path = os.path.abspath(path)  # noqa: PTH100
    raise SettingsError(
        f"{variable} must be an absolute path, not {value!r}: set it to {full_path}"
    )


def data_folder() -> str:
    """Return `RECOLLECT_HOME`, or else the platform's folder for a program's data."""
    home = os.environ.get("RECOLLECT_HOME")
    if home:
        return absolute_path("RECOLLECT_HOME", home)
    usual = _USUAL.get(sys.platform)
    if usual is not None and not os.environ.get("XDG_DATA_HOME"):
        return os.path.expanduser(usual)  # noqa: PTH111
    import platformdirs

    return platformdirs.user_data_dir("recollect", appauthor=False)
