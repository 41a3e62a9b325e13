"""Imported messages stand where live requests of the same session put them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.core.engine import Engine
from recollect.core.formats.codec import CODECS
from recollect.core.formats.transcripts import read_transcript
from recollect.core.rules.identity import space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.transcripts import PlacedItems, place_items
from recollect.core.turn.align import LastRequest, Reading, align, read
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey
from recollect.core.values.transcript import RecordedSession
from recollect.system.config import build

SPACE = "lineage"
RECORDINGS = (
    *("pi_before-compaction.jsonl.gz", "pi_large-session.jsonl.gz", "codex_session.jsonl.gz"),
    "codex_session_patches.jsonl.gz",
)


def readings(transcript: RecordedSession) -> tuple[Reading, ...]:
    raws = [item.raw for item in transcript.items]
    codec = CODECS[transcript.format]
    return read(raws, codec, space_secret(SPACE), Weigher(), LastRequest()).new_readings


def lineage(transcript: RecordedSession, known: SessionState | None = None) -> PlacedItems:
    return place_items(transcript, readings(transcript), known)


class PiSession:
    """A pi session written entry by entry."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = [
            {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T10:00:00Z"}
        ]
        self.last: str | None = None

    def add(self, kind: str, **fields: Any) -> str:
        entry = f"e{len(self.lines)}"
        line = {"type": kind, "id": entry, "parentId": self.last, **fields}
        self.lines.append({"timestamp": "2026-01-01T10:00:00Z", **line})
        self.last = entry
        return entry

    def says(self, role: str, text: str) -> str:
        content = [{"type": "text", "text": text}]
        extra = {"stopReason": "stop"} if role == "assistant" else {}
        return self.add("message", message={"role": role, "content": content, **extra})

    def turns(self, count: int) -> str:
        """So many questions with their answers; the entry of the last question."""
        question = ""
        for turn in range(count):
            question = self.says("user", said(f"question {turn}"))
            self.says("assistant", said(f"answer {turn}"))
        return question

    def transcript(self) -> RecordedSession:
        return read_transcript("".join(json.dumps(line) + "\n" for line in self.lines).encode())


def said(text: str) -> str:
    return f"{text}: " + "several words that make this message a distinctive one " * 2


async def live_keys(transcript: RecordedSession) -> dict[int, EntryKey]:
    """The keys that an engine gives when it is sent every request of the recording."""
    engine = Engine(build({"window_tokens": 1_000_000}), space=SPACE)
    found: dict[int, EntryKey] = {}
    for request in transcript.requests:
        shown = list(request.shown)
        raws = [transcript.items[at].raw for at in shown]
        body = b'{"messages":[' + b",".join(raws) + b"]}"
        context = await engine.prepare("s", body, format="pi")
        for at, entry in zip(shown, context.report.entries, strict=True):
            found.setdefault(at, entry.key)
    return found


async def test_a_compacted_session_stands_where_live_requests_put_it() -> None:
    session = PiSession()
    kept = session.turns(4)
    session.add("compaction", summary="what was said", firstKeptEntryId=kept, tokensBefore=9)
    session.says("user", said("question behind the summary"))
    session.says("assistant", said("answer behind the summary"))
    session.says("user", said("a last question that nobody answered"))
    transcript = session.transcript()
    found = lineage(transcript)
    live = await live_keys(transcript)
    assert {at: found.keys[at] for at in live} == live
    assert len(set(found.keys)) == len(transcript.items)
    # summary, kept question and answer, question, answer, last question
    assert len(found.state.path) == 6


async def test_a_branch_that_was_left_keeps_its_messages_once() -> None:
    session = PiSession()
    first = session.says("user", said("the first question"))
    session.says("assistant", said("an answer that was not liked"))
    session.says("user", said("and so on"))
    session.says("assistant", said("further down the wrong way"))
    session.last = first
    session.says("assistant", said("a better answer"))
    transcript = session.transcript()
    found = lineage(transcript)
    live = await live_keys(transcript)
    assert {at: found.keys[at] for at in live} == live
    assert len(set(found.keys)) == 5
    assert found.state.path == (found.keys[0], found.keys[4])


def test_a_later_request_of_an_imported_session_is_aligned_with_it() -> None:
    session = PiSession()
    kept = session.turns(3)
    session.add("compaction", summary="what was said", firstKeptEntryId=kept, tokensBefore=9)
    session.says("user", "ok")
    session.says("assistant", said("done"))
    transcript = session.transcript()
    found = lineage(transcript)
    known = readings(transcript)
    session.says("user", said("one more"))
    longer = session.transcript()
    context = [*longer.requests[-1].shown, len(known) - 1, len(known)]
    ids = [readings(longer)[at].id for at in context]
    aligned = align(found.state, ids, [reading.tokens for reading in readings(longer)])
    assert aligned.keys[:-1] == found.state.path
    assert aligned.course == "continued"


async def test_a_session_that_was_live_before_keeps_the_keys_it_has() -> None:
    session = PiSession()
    kept = session.turns(3)
    session.add("compaction", summary="what was said", firstKeptEntryId=kept, tokensBefore=9)
    session.says("user", said("behind it"))
    session.says("assistant", said("and its answer"))
    transcript = session.transcript()
    # the engine came late: all it ever saw is the history behind the summary
    engine = Engine(build({"window_tokens": 1_000_000}), space=SPACE)
    shown = list(transcript.requests[-1].shown)
    raws = [transcript.items[at].raw for at in shown]
    body = b'{"messages":[' + b",".join(raws) + b"]}"
    context = await engine.prepare("s", body, format="pi")
    live = dict(zip(shown, (entry.key for entry in context.report.entries), strict=True))
    found = lineage(transcript, context.state)
    assert {at: found.keys[at] for at in live} == live
    assert len(set(found.keys)) == len(transcript.items)


@pytest.mark.parametrize("name", RECORDINGS)
def test_real_recordings_stand_where_live_requests_put_them(data: Path, name: str) -> None:
    transcript = read_transcript((data / "transcripts" / name).read_bytes(), name=name)
    known = readings(transcript)
    found = place_items(transcript, known)
    state = SessionState()
    for request in transcript.requests:
        shown = list(request.shown)
        ids = tuple(known[at].id for at in shown)
        aligned = align(state, ids, [known[at].tokens for at in shown])
        assert aligned.keys == tuple(found.keys[at] for at in shown)
        state = SessionState(path=aligned.keys, ids=ids, aliases=aligned.aliases)
    again = place_items(transcript, known, replace(found.state, sent_at=1.0))
    assert again.keys == found.keys
