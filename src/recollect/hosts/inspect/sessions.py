"""Lists sessions, resolves their names, and reads the receipts of their compactions. Every command,
tool and host resolves a session's name with `find_sessions`. Files and stores are read without
locks, while other processes may be writing them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recollect.adapters.session.files import SessionIndex
from recollect.core.engine.host_receipts import HOST_KEY
from recollect.core.formats.json_text import instant
from recollect.core.formats.stored_records import RecordedCompaction, join_state, read_record
from recollect.core.rules.noise import without_reminders
from recollect.core.values.compaction import Receipt
from recollect.core.values.history import newest_cut
from recollect.core.values.recall import FILE_SESSIONS
from recollect.errors import FormatError, RecollectError
from recollect.system.places import sessions_folder
from recollect.system.plain_text import plain_line

if TYPE_CHECKING:
    from recollect.core.compaction.receipt import DiffLine
    from recollect.core.engine import Engine
    from recollect.core.ports import Store
    from recollect.core.values.batch import StoredSession
    from recollect.core.values.compaction import (
        CompactionRecord,
        CompactionResult,
        ProbeFinding,
        ProbeKind,
    )
    from recollect.system.config import Settings

_INFO: Final = b'"session_info"'
_MESSAGE_MARKS: Final = tuple(
    b'"message":{"role":"%b"' % role for role in (b"user", b"assistant", b"toolResult")
)
# Not measured: shorter prefixes match by chance, and more ids make an error hard to read.
_MIN_PREFIX_CHARS: Final = 4
_MAX_NAMED: Final = 5
# Not measured: what fits a line of a list, and queries that a page waits for.
TITLE_CHARS: Final = 70
MAX_TITLES: Final = 200
_TITLE_MESSAGES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session of a space, as listings show it."""

    session_id: str
    name: str = field(default="", repr=False)
    messages: int = 0
    """Number of messages of user, model and tools, on all branches."""
    changed: float = 0.0
    keys: tuple[str, ...] = ()
    """All keys that continue this session. A session has two keys if one key resumed the session of
    another."""


def sessions_of(space: str) -> list[SessionLine]:
    """List the transcripts of a space, last changed first. Reads the disk."""
    keys: dict[str, list[str]] = {}
    for key, record in SessionIndex.of_space(space).sessions().items():
        keys.setdefault(record.session_id, []).append(key)
    lines: list[SessionLine] = []
    for path in sessions_folder(space).glob("*.jsonl"):
        with suppress(OSError):
            name, messages = _glance(path)
            session_keys = sorted(keys.get(path.stem, ()), key=lambda key: key != "main")
            lines.append(
                SessionLine(
                    session_id=path.stem,
                    keys=tuple(session_keys),
                    name=name,
                    messages=messages,
                    changed=path.stat().st_mtime,
                )
            )
    return sorted(lines, key=lambda line: line.changed, reverse=True)


def _glance(path: Path) -> tuple[str, int]:
    name, message_count = "", 0
    with path.open("rb") as file:
        for line in file:
            message_count += any(mark in line[:400] for mark in _MESSAGE_MARKS)
            if _INFO in line:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict) and entry.get("type") == "session_info":
                    name = str(entry.get("name") or "")
    return name, message_count


async def list_stored_sessions(store: Store) -> list[SessionLine]:
    """List a store's sessions, except memory files, the most recently active session first."""
    lines = [
        SessionLine(
            session_id=session.session,
            messages=session.segments,
            changed=session.last_said_at or 0.0,
        )
        for session in await store.sessions()
        if not session.session.startswith(FILE_SESSIONS)
    ]
    return sorted(lines, key=lambda line: line.changed, reverse=True)


async def with_titles(store: Store, lines: Sequence[SessionLine]) -> list[SessionLine]:
    """Give sessions without a name their first prompt as the name; only the first lines, because
    each takes a query."""
    named_lines = [
        line if line.name else replace(line, name=await _first_prompt(store, line.session_id))
        for line in lines[:MAX_TITLES]
    ]
    return [*named_lines, *lines[MAX_TITLES:]]


async def _first_prompt(store: Store, session: str) -> str:
    for stored in await store.page(session=session, limit=_TITLE_MESSAGES):
        text = without_reminders(stored.segment.text).strip()
        is_typed = stored.segment.role == "user" and not stored.segment.noise
        if text and is_typed and not text.startswith("<"):  # agents' own notes begin with a tag
            title = plain_line(text[: 4 * TITLE_CHARS])
            return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1].rstrip()}…"
    return ""


def find_sessions(lines: Sequence[SessionLine], name: str) -> list[SessionLine]:
    """Return the sessions with this key, else with this id or name, else with this id prefix. An
    agent's name before the id (`claude-code:…`) may be omitted."""
    if not name:
        return []
    ids = {line.session_id: (line.session_id, line.session_id.partition(":")[2]) for line in lines}
    long = len(name) >= _MIN_PREFIX_CHARS
    ways = (
        [line for line in lines if name in line.keys],
        [line for line in lines if name in (line.session_id, line.name)],
        [line for line in lines if name in ids[line.session_id]],
        [line for line in lines if long and any(i.startswith(name) for i in ids[line.session_id])],
    )
    return next((way for way in ways if way), [])


def find_session(lines: Sequence[SessionLine], name: str) -> SessionLine:
    """Return the one session with this key, id, id prefix or name. Raise RecollectError if no
    session or several sessions match."""
    matches = find_sessions(lines, name)
    shown_name = plain_line(name[:80])
    if not matches:
        raise RecollectError(
            f"no session is called {shown_name!r} here; `recollect memory sessions` lists them"
        )
    if len(matches) > 1:
        names = sorted(plain_line(line.session_id) for line in matches)
        ids = ", ".join(names[:_MAX_NAMED])
        rest_note = f" and {len(matches) - _MAX_NAMED:,} more" if len(matches) > _MAX_NAMED else ""
        raise RecollectError(
            f"several sessions are called {shown_name!r}: {ids}{rest_note}; give more of the id"
        )
    return matches[0]


async def resolve_session(store: Store, name: str) -> str:
    """Return the id of a store's session with this name; `wanted` itself if there is none."""
    if await store.session(name) is not None:
        return name
    lines = await list_stored_sessions(store)
    if not find_sessions(lines, name):
        return name
    return find_session(lines, name).session_id


@asynccontextmanager
async def engine_without_models(
    space: str, store: str | None, settings: Settings
) -> AsyncIterator[Engine]:
    """Open an engine for work that needs no model, and so no key, embedder or job."""
    from recollect.adapters.wiring import open_memory
    from recollect.system.config.settings import Models

    settings = replace(
        settings,
        models=Models(),
        recall=replace(settings.recall, embedder="none"),
        jobs=replace(settings.jobs, in_process=False),
    )
    async with open_memory(space=space, store=store, settings=settings) as engine:
        yield engine


KIND_NAMES: Final[dict[ProbeKind, str]] = {
    "constraint": "constraints",
    "decision": "decisions",
    "task": "open tasks",
    "attempt": "failed attempts",
    "error": "errors",
    "command": "commands",
    "path": "paths",
    "url": "addresses",
    "symbol": "symbols",
    "hash": "hashes",
    "number": "numbers",
}
STANDINGS: Final = ("in summary", "pinned", "recallable", "lost")


def standing_of(finding: ProbeFinding) -> str:
    return "pinned" if finding.pinned else finding.standing


_HOST_NAMES: Final = {"claude-code": "Claude Code", "codex": "Codex"}


def host_of(result: CompactionResult) -> str:
    """Return the agent that compacted by itself; "" if Recollect compacted."""
    host = str(result.details.get(HOST_KEY) or "")
    return _HOST_NAMES.get(host, host)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptPage:
    """One compaction, and the summary that it replaced."""

    session: str
    number: int
    of: int
    undone: bool = False
    """True if the compaction was undone, or its messages were forgotten."""
    recorded: RecordedCompaction
    previous_summary: str = field(default="", repr=False)
    previous_number: int | None = None
    """Number of the previous compaction; None if there was none, or its record is not stored."""

    @property
    def host(self) -> str:
        """The agent that compacted by itself; "" if Recollect compacted."""
        return host_of(self.recorded.result)

    @property
    def pinned_word(self) -> str:
        """How the details are called that Recollect added."""
        return "given back" if self.host else "pinned"

    def diff(self) -> Sequence[DiffLine]:
        """Compare the summary with the previous one, line by line; empty if that is not stored."""
        from recollect.core.compaction.receipt import compare

        summary = self.recorded.result.summary
        return compare(self.previous_summary, summary) if self.previous_number else ()

    def as_json(self) -> dict[str, Any]:
        """Return the page as `--json` prints it."""
        result = self.recorded.result
        return {
            "session": self.session,
            **result.to_dict(),
            "host": self.host,
            "undone": self.undone,
            "at": instant(self.recorded.at),
            "turn": self.recorded.turn,
            "previous_number": self.previous_number,
            "diff": [
                {"change": line.change, "text": line.text}
                for line in self.diff()
                if line.change != "kept"
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """The stored compactions of a session, oldest first."""

    session: str
    records: Sequence[CompactionRecord]
    shown: int | None
    """Number of the compaction whose summary the view shows; 0 if it shows none, None if
    unknown."""
    is_known: bool

    def page(self, number: int | None = None) -> ReceiptPage:
        """Return a compaction's page, by default the newest. Raise RecollectError if it is
        missing."""
        numbers = [record.number for record in self.records]
        chosen_number = number if number is not None else max(numbers, default=0)
        if chosen_number not in numbers:
            stored_numbers = ", ".join(map(str, numbers)) or "none"
            raise RecollectError(
                f"there is no compaction {chosen_number}; stored are {stored_numbers}"
            )
        index = numbers.index(chosen_number)
        # if the previous record is missing, a diff would compare with an older one
        before = (
            self.records[index - 1] if index and numbers[index - 1] == chosen_number - 1 else None
        )
        compaction = _read(self.records[index])
        return ReceiptPage(
            session=self.session,
            number=chosen_number,
            of=numbers[-1],
            undone=not host_of(compaction.result) and self._is_undone(chosen_number),
            recorded=compaction,
            previous_summary="" if before is None else _read(before).result.summary,
            previous_number=None if before is None else before.number,
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per compaction, for JSON."""
        return [self._row(record) for record in self.records]

    def _row(self, record: CompactionRecord) -> dict[str, Any]:
        result = _read(record).result
        receipt = result.receipt or Receipt()
        return {
            "number": record.number,
            "at": instant(record.at),
            "trigger": result.trigger,
            "host": host_of(result),
            "tokens_before": result.tokens_before,
            "tokens_after": result.tokens_after,
            "in_summary": receipt.count("in summary"),
            "recallable": receipt.count("recallable"),
            "lost": receipt.count("lost"),
            "pinned": receipt.pinned,
            "checked": receipt.checked,
            "not_checked": receipt.not_checked,
            "undone": not host_of(result) and self._is_undone(record.number),
        }

    def _is_undone(self, number: int) -> bool:
        return self.shown is not None and number > self.shown


async def read_receipts(store: Store, session: str) -> Receipts:
    """Read the compactions of a session."""
    state = await store.session(session)
    records = await store.compactions(session)
    return Receipts(
        session=session, records=records, shown=_number_in_view(state), is_known=state is not None
    )


def _number_in_view(state: StoredSession | None) -> int | None:
    if state is None:
        return None
    try:
        cut = newest_cut(join_state(state.state, state.path, state.ids).edits)
    except FormatError:
        return None
    return 0 if cut is None else cut.number


def _read(record: CompactionRecord) -> RecordedCompaction:
    try:
        return read_record(record.body)
    except FormatError as error:
        raise RecollectError(f"compaction {record.number} cannot be read: {error}") from error
