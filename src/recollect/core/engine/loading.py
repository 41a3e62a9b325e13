"""Loads the state of a session: the newest one of the store, the spool and this process."""

from __future__ import annotations

import time
from dataclasses import replace

from recollect.core.boundary import Boundary, Failure
from recollect.core.engine.archive import DurableArchive
from recollect.core.engine.guarded_store import GuardedStore, NoAnswer
from recollect.core.engine.ledger import ArchiveState, newest_session
from recollect.core.formats.stored_records import join_state
from recollect.core.values.batch import StoredSession
from recollect.core.values.history import SessionState, requests_of
from recollect.core.values.reason import Cause, Reason
from recollect.errors import FormatError


def note_trouble(archive: DurableArchive, boundary: Boundary) -> None:
    """Report problems of the store and the spool, unless the report contains them."""
    reported_texts = {
        reason.numbers.get("error") for line in boundary.lines for reason in line.reasons
    }
    if trouble := archive.trouble(reported_texts=reported_texts):
        boundary.note("ingest", "late", Reason(Cause.ARCHIVE_TROUBLE, trouble=trouble))


async def load_stored(
    archive: DurableArchive,
    session: str,
    state: SessionState,
    archive_state: ArchiveState,
    boundary: Boundary,
) -> SessionState:
    """Return the session's newest state, which this process or another one wrote."""
    boundary.add(archive_state.report_lines)
    archive_state.report_lines.clear()
    note_trouble(archive, boundary)
    if archive_state.replaced != archive.replaced:
        if archive_state.copy == "current":
            boundary.note("ingest", "failed", Reason(Cause.STORE_REPLACED))
        archive_state.write_from_start(archive.replaced)
    if archive_state.copy == "current":
        return state
    was_outdated = archive_state.copy == "outdated"
    stored_session = await _read_stored(archive, session, archive_state, boundary)
    if isinstance(stored_session, Failure):
        boundary.note("load", "failed", Reason(Cause.SESSION_NOT_LOADED, error=stored_session.said))
        return state
    if stored_session is None:
        return state
    try:
        stored_state = join_state(stored_session.state, stored_session.path, stored_session.ids)
    except FormatError as error:
        boundary.note("load", "failed", Reason(Cause.ERROR, error=str(error)))
        newest = max(state.turn, stored_session.turn)
        return replace(state, turn=newest, requests=max(state.requests, stored_session.turn))
    requests = requests_of(stored_state)
    reason = Reason(Cause.SESSION_LOADED, messages=len(stored_session.path), turn=requests)
    boundary.note("load", "done", reason)
    archive_state.path, archive_state.stored_keys = stored_session.path, stored_session.newest
    archive_state.may_be_broken = True
    # If a session continued while the store was down, use the edits of that time.
    is_ours_newer = (state.edits or state.turn > stored_session.turn) and not was_outdated
    if archive_state.copy == "outdated":
        archive_state.copy = "missing"
    return replace(
        state if is_ours_newer else stored_state,
        turn=max(state.turn, stored_session.turn),
        requests=max(state.requests, requests),
    )


async def _read_stored(
    archive: DurableArchive, session: str, archive_state: ArchiveState, boundary: Boundary
) -> StoredSession | Failure | None:
    began_at, seconds = time.monotonic(), archive.open_seconds
    # Read the spool first. A batch that is moved to the store meanwhile is read twice, not
    # missed.
    session_writes = await archive.read_waiting(session, seconds=seconds / 2)
    left_seconds = seconds - (time.monotonic() - began_at)
    stored_session: StoredSession | Failure | None
    try:
        stored_session = await GuardedStore(archive, seconds=left_seconds).session(session)
    except NoAnswer as error:
        stored_session = error.failure
    boundary.allow(time.monotonic() - began_at)
    if isinstance(session_writes, Failure):  # read the spool again in the next turn
        boundary.note("load", "late", Reason(Cause.SPOOL_NOT_READ, error=session_writes.said))
        return stored_session
    newest = newest_session(
        None if isinstance(stored_session, Failure) else stored_session, session_writes
    )
    if newest is None and isinstance(stored_session, Failure):
        return stored_session
    archive_state.copy = "current"
    if not archive_state.tasks:  # another process stored the session
        archive_state.location = archive.location
    return stored_session if newest is None else newest
