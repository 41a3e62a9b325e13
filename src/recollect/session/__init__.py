"""Sessions on disk: transcripts, the index of a space's sessions, the workspace's files.

For hosts that keep conversations of their own. Always holds: what a method acknowledged is on
the disk; a file that is not ours is never altered.
"""

from recollect.config.places import sessions_folder
from recollect.session.files import new_session_id, sessions_file, transcript_file
from recollect.session.index import SessionIndex, SessionRecord
from recollect.session.transcript import (
    SessionTranscript,
    migrate_file,
    open_transcript,
    read_session_file,
)
from recollect.session.workspace import (
    LoadedWorkspace,
    WorkspaceFile,
    create_missing_files,
    daily_note,
    load_workspace,
    local_day,
)

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
