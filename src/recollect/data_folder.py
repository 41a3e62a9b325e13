"""The one folder of all data, found without importing anything else of Recollect.

A hook asks for it while an agent waits, so what `platformdirs` says is said here again for the
usual case: importing that would take longer than the rest of the hook.
"""

from __future__ import annotations

import os
import sys

_USUAL = {
    "darwin": "~/Library/Application Support/recollect",
    "linux": "~/.local/share/recollect",
}


def data_folder() -> str:
    """`RECOLLECT_HOME`, else where this platform keeps a program's data.

    One that is relative is made absolute at the first question, for processes that this one starts
    too: it means the folder of then, wherever they stand later.
    """
    given = os.environ.get("RECOLLECT_HOME")
    if given and not os.path.isabs(given):  # noqa: PTH117 - pathlib is slow to import
        given = os.path.abspath(os.path.expanduser(given))  # noqa: PTH100, PTH111
        os.environ["RECOLLECT_HOME"] = given
    if given:
        return given
    usual = _USUAL.get(sys.platform)
    if usual is not None and not os.environ.get("XDG_DATA_HOME"):
        return os.path.expanduser(usual)  # noqa: PTH111
    import platformdirs

    return platformdirs.user_data_dir("recollect", appauthor=False)
