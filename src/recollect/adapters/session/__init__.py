"""Sessions on disk: transcripts, the index of a space's sessions, the workspace's files.

For hosts that keep conversations of their own. Always holds: what a method acknowledged is on
the disk; a file that is not ours is never altered. Names are imported when they are first used: a
gateway writes a file as this package does, and needs no transcripts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.adapters.session.files import new_session_id, sessions_file, transcript_file
    from recollect.adapters.session.index import SessionIndex, SessionRecord
    from recollect.adapters.session.transcript import (
        SessionTranscript,
        migrate_file,
        open_transcript,
        read_session_file,
    )
    from recollect.adapters.session.workspace import (
        LoadedWorkspace,
        WorkspaceFile,
        create_missing_files,
        daily_note,
        load_workspace,
        local_day,
    )
    from recollect.system.config.places import sessions_folder

__all__ = [
    "LoadedWorkspace",
    "SessionIndex",
    "SessionRecord",
    "SessionTranscript",
    "WorkspaceFile",
    "create_missing_files",
    "daily_note",
    "load_workspace",
    "local_day",
    "migrate_file",
    "new_session_id",
    "open_transcript",
    "read_session_file",
    "sessions_file",
    "sessions_folder",
    "transcript_file",
]
_MODULES = {
    "recollect.system.config.places": ("sessions_folder",),
    "recollect.adapters.session.files": ("new_session_id", "sessions_file", "transcript_file"),
    "recollect.adapters.session.index": ("SessionIndex", "SessionRecord"),
    "recollect.adapters.session.transcript": (
        *("SessionTranscript", "migrate_file", "open_transcript", "read_session_file"),
    ),
    "recollect.adapters.session.workspace": (
        *("LoadedWorkspace", "WorkspaceFile", "create_missing_files"),
        *("daily_note", "load_workspace", "local_day"),
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
