"""What a recording may cost: unpacked size, long lines, millions of lines, long messages."""

import gzip
import json
import sys
import time
import tracemalloc
from collections.abc import Callable

import pytest

from recollect.core.formats.transcripts import read_transcripts
from recollect.core.formats.transcripts.records import MAX_LINE_BYTES, MAX_NOTES
from recollect.core.turn.ingest import MAX_INDEXED_CHARS, index
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import Segment, SegmentId
from recollect.errors import FormatError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LONG = "x" * (MAX_LINE_BYTES + 1)


def claude_line(number: int, text: str) -> str:
    return json.dumps(
        {
            "uuid": str(number),
            "parentUuid": str(number - 1) if number else None,
            "sessionId": "s",
            "type": "user",
            "message": {"role": "user", "content": text},
        }
    )


def codex_line(number: int, text: str) -> str:
    content = [{"type": "input_text", "text": text}]
    message = {"type": "message", "role": "user", "content": content}
    return json.dumps({"timestamp": "2026-01-01", "type": "response_item", "payload": message})


def pi_line(number: int, text: str) -> str:
    message = {"role": "user", "content": text}
    return json.dumps({"type": "message", "id": f"e{number}", "parentId": None, "message": message})


def message_line(number: int, text: str) -> str:
    return json.dumps({"role": "user", "content": text})


LINES = [claude_line, codex_line, pi_line, message_line]


@pytest.mark.parametrize("line", LINES)
def test_a_long_line_is_skipped_and_named(line: Callable[[int, str], str]) -> None:
    texts = ["first", LONG, "third"]
    data = "\n".join(line(number, text) for number, text in enumerate(texts)).encode()
    (session,) = read_transcripts(data)
    assert [item.line for item in session.items] == [1, 3]
    (note,) = [note for note in session.passed_over if note.startswith("line 2:")]
    assert f"{MAX_LINE_BYTES:,} bytes" in note


@pytest.mark.parametrize("opening", ["", '{"model":"m","messages":'])
def test_a_long_item_of_an_array_is_skipped_and_named(opening: str) -> None:
    items = [message_line(0, "first"), message_line(1, LONG)]
    document = f"[{','.join(items)}]"
    if opening:
        with pytest.raises(FormatError, match=r"no line to read: line 1: .* bytes long"):
            read_transcripts(f"{opening}{document}}}".encode(), name="big.json")
        return
    (session,) = read_transcripts(document.encode())
    assert [item.line for item in session.items] == [1]
    assert session.passed_over[0].startswith("item 2: ")


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_bomb_is_not_unpacked(pack: Callable[[bytes], bytes]) -> None:
    packed = pack(claude_line(0, "x" * 200_000_000).encode())
    assert len(packed) < 400_000
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"s\.jsonl unpacks to more than .* pass the unpacked"):
        read_transcripts(packed, name="s.jsonl")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120_000_000


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_what_is_cut_off_is_named_as_damaged(pack: Callable[[bytes], bytes]) -> None:
    packed = pack("\n".join(claude_line(n, f"text {n}") for n in range(500)).encode())
    assert len(read_transcripts(packed)[0].items) == 500
    with pytest.raises(FormatError, match="is a damaged"):
        read_transcripts(packed[: len(packed) // 2])
    both = pack(claude_line(0, "a").encode() + b"\n") + pack(claude_line(1, "b").encode())
    assert len(read_transcripts(both)[0].items) == 2


@pytest.mark.parametrize("junk", [b"x\n", b"{}\n", b"[]\n", b"\xff\n", b'"\n'])
def test_many_bad_lines_cost_little(junk: bytes) -> None:
    data = claude_line(0, "first").encode() + b"\n" + junk * 500_000
    started = time.process_time()
    (session,) = read_transcripts(data)
    assert len(session.items) == 1
    assert len(session.passed_over) <= MAX_NOTES + 1
    if session.passed_over:
        assert session.passed_over[-1].endswith("later lines are skipped without a note")
    assert time.process_time() - started < 5


def test_a_long_message_is_found_by_its_ends() -> None:
    text = f"heron {'lorem ipsum. ' * (MAX_INDEXED_CHARS // 10)} otter {'dolor. ' * 200_000} ibis"
    segment = Segment(
        id=SegmentId("i"),
        session="s",
        key=EntryKey("k"),
        message_id=MessageId("m"),
        role="user",
        text=text,
        tokens=1,
        said_at=0.0,
        source="import",
        trust="high",
    )
    passages = index(segment)
    words = {word for passage in passages for word in passage.words}
    assert {"heron", "ibi"} <= words
    assert "otter" not in words
    assert sum(passage.end - passage.start for passage in passages) <= MAX_INDEXED_CHARS + 5_000
