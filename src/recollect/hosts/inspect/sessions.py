"""Which sessions there are, and which one a name means: transcripts of a folder, or a store's.

Every command, tool and host resolves a name by `sessions_called`. Reads files that others may be
writing; nothing is locked or changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recollect.adapters.session.index import SessionIndex
from recollect.core.values.recall import FILE_SESSIONS
from recollect.errors import RecollectError
from recollect.system.config.places import sessions_folder
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.ports import Store

_INFO: Final = b'"session_info"'
_SAID: Final = tuple(
    b'"message":{"role":"%b"' % role for role in (b"user", b"assistant", b"toolResult")
)
_LEAST_PREFIX: Final = 4
_MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session of a space, as it is listed."""

    session_id: str
    key: str = ""
    """Its key in the index, the first of several; empty if it is no key's newest session."""
    name: str = field(default="", repr=False)
    messages: int = 0
    """Messages of user, model and tools, on all of its branches."""
    changed: float = 0.0
    current: bool = False
    """The running session; for a shell, the one that a chat continues by default."""
    keys: tuple[str, ...] = ()
    """All keys that continue it: two do if one resumed the other's session."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, under these names."""
        return asdict(self)


def sessions_of(space: str) -> list[SessionLine]:
    """The transcripts of a space, the one that changed last first. Waits for the disk."""
    index = SessionIndex.of_space(space)
    main = index.get("main")
    return listed_sessions(sessions_folder(space), "" if main is None else main.session_id, index)


def listed_sessions(folder: Path, current: str, index: SessionIndex | None) -> list[SessionLine]:
    """The transcripts of a folder, the one that changed last first. Waits for the disk."""
    keys: dict[str, list[str]] = {}
    for key, record in ({} if index is None else index.sessions()).items():
        keys.setdefault(record.session_id, []).append(key)
    found: list[SessionLine] = []
    for path in folder.glob("*.jsonl"):
        try:
            (name, messages), changed = _glance(path), path.stat().st_mtime
        except OSError:
            continue
        own = sorted(keys.get(path.stem, ()), key=lambda key: key != "main")
        found.append(
            SessionLine(
                session_id=path.stem,
                key=own[0] if own else "",
                keys=tuple(own),
                name=name,
                messages=messages,
                changed=changed,
                current=path.stem == current,
            )
        )
    return sorted(found, key=lambda line: line.changed, reverse=True)


def _glance(path: Path) -> tuple[str, int]:
    """The last name of a session, and its number of messages; only names are parsed as JSON."""
    name, said = "", 0
    with path.open("rb") as file:
        for line in file:
            said += any(mark in line[:400] for mark in _SAID)
            if _INFO in line:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict) and entry.get("type") == "session_info":
                    name = str(entry.get("name") or "")
    return name, said


async def stored_sessions(store: Store) -> list[SessionLine]:
    """The sessions of a store, the one with the newest message first; memory files are none."""
    lines = [
        SessionLine(session_id=one.session, messages=one.segments, changed=one.last_said_at or 0.0)
        for one in await store.sessions()
        if not one.session.startswith(FILE_SESSIONS)
    ]
    return sorted(lines, key=lambda line: line.changed, reverse=True)


def sessions_called(lines: Sequence[SessionLine], wanted: str) -> list[SessionLine]:
    """Those with this key; else with this id or name; else whose id begins so.

    An agent's name before the id (`claude-code:…`) may be left out.
    """
    if not wanted:
        return []
    ids = {line.session_id: (line.session_id, line.session_id.partition(":")[2]) for line in lines}
    ways = (
        [line for line in lines if wanted in line.keys],
        [line for line in lines if wanted in (line.session_id, line.name)],
        [line for line in lines if wanted in ids[line.session_id]],
        [
            line
            for line in lines
            if len(wanted) >= _LEAST_PREFIX
            and any(id_.startswith(wanted) for id_ in ids[line.session_id])
        ],
    )
    return next((way for way in ways if way), [])


def session_meant(
    lines: Sequence[SessionLine], wanted: str, *, listing: str = "`recollect sessions`"
) -> SessionLine:
    """The one session of this key, id, id prefix or name; RecollectError if there is not one."""
    found = sessions_called(lines, wanted)
    named = plain_line(wanted[:80])
    if not found:
        raise RecollectError(f"no session is called {named!r} here; {listing} lists them")
    if len(found) > 1:
        names = sorted(plain_line(line.session_id) for line in found)
        ids = ", ".join(names[:_MOST_NAMED])
        more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
        raise RecollectError(f"several sessions are called {named!r}: {ids}{more}; give more of it")
    return found[0]


async def stored_session(store: Store, wanted: str) -> str:
    """The session of a store that is meant; `wanted` itself if none is called so."""
    if await store.session(wanted) is not None:
        return wanted
    lines = await stored_sessions(store)
    if not sessions_called(lines, wanted):
        return wanted
    return session_meant(lines, wanted).session_id
