"""Where sessions lie: under the data folder, laid out as OpenClaw lays them out.

Decides names, opens nothing. Always holds: two spaces, and two sessions of a space, never share
a file, whatever their names look like; no name leads out of its folder.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Final

from recollect.config.places import data_home, file_name

INDEX_NAME: Final = "sessions.json"
OUTPUTS_SUFFIX: Final = ".outputs"
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMED: Final = "named-"  # keeps a name that was made safe apart from every UUID


def new_session_id() -> str:
    """An id for a new transcript."""
    return str(uuid.uuid4())


def sessions_folder(space: str) -> Path:
    """The folder of a space's sessions; the space is what OpenClaw calls an agent."""
    return data_home() / "agents" / file_name(space) / "sessions"


def transcript_file(space: str, session_id: str) -> Path:
    """The transcript of a session."""
    plain = _UUID.fullmatch(session_id) is not None
    name = session_id if plain else _NAMED + file_name(session_id)
    return sessions_folder(space) / f"{name}.jsonl"


def outputs_folder(transcript: Path) -> Path:
    """Where long outputs of a session's commands are kept: beside its transcript."""
    return transcript.with_suffix(OUTPUTS_SUFFIX)


def sessions_file(space: str) -> Path:
    """The index of a space's sessions."""
    return sessions_folder(space) / INDEX_NAME
