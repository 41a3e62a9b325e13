"""What a recording is, told by its content; packed, broken and odd files."""

import gzip
import json
import random
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.core.formats.transcripts import detect_kind, read_transcript, read_transcripts
from recollect.errors import FormatError, UnknownFormat

PI = b'{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}'
PI_USER = b'{"type":"message","id":"1","parentId":null,"message":{"role":"user","content":"x"}}'
PI_REPLY = b'{"type":"message","id":"2","parentId":"1","message":{"role":"assistant","content":[]}}'
CLAUDE = b'{"type":"user","uuid":"u","parentUuid":null,"message":{"role":"user","content":"x"}}'
CODEX = b'{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s"}}'
FLAT = b'{"role":"user","content":"x","timestamp":"2026-01-01T00:00:00Z"}'
CHAT = b'{"role":"tool","tool_call_id":"c","content":"x"}'
REQUEST = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
LIST = b'[{"role":"user","content":"x"}]'


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PI, "pi"),
        (PI_USER + b"\n" + PI_REPLY, "pi"),
        (CLAUDE, "claude-code"),
        (b'{"type":"summary","summary":"t","leafUuid":"u"}\n' + CLAUDE, "claude-code"),
        (CODEX, "codex"),
        (FLAT, "messages"),
        (FLAT + b"\n" + CHAT, "messages"),
        (REQUEST, "request"),
        (json.dumps(json.loads(REQUEST), indent=1).encode(), "request"),
        (b'{\n"messages": [\n{"role":"user","content":"x"}\n]\n}', "request"),
        (LIST, "messages"),
        (b"\xef\xbb\xbf\r\n" + PI, "pi"),
        (b"torn li\n" + CODEX, "codex"),
    ],
)
def test_the_kind_is_told_by_content(data: bytes, kind: str) -> None:
    assert detect_kind(data) == kind
    assert detect_kind(gzip.compress(data)) == kind
    assert {transcript.kind for transcript in read_transcripts(data)} == {kind}


@pytest.mark.parametrize("data", [b"# a chat\n\n> words\n", b"{}", b"[]", b"[1,2]", b"{", b"7"])
def test_what_is_no_recording_says_what_was_looked_for(data: bytes) -> None:
    with pytest.raises(UnknownFormat, match="Looked for: a pi or OpenClaw session") as raised:
        read_transcript(data, name="notes.md")
    assert "notes.md" in str(raised.value)
    assert "Pass the session file itself" in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"\n \r\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file_says_so(data: bytes) -> None:
    with pytest.raises(UnknownFormat, match="is empty"):
        detect_kind(data)


def test_zstandard_is_unpacked_and_a_damaged_file_told() -> None:
    assert read_transcript(zstd.compress(CODEX)).kind == "codex"
    with pytest.raises(FormatError, match="damaged Zstandard"):
        read_transcript(b"\x28\xb5\x2f\xfd0000")


def test_lone_surrogates_and_nan_are_read_with_their_bytes() -> None:
    message = b'{"role":"user","content":"cut \\ud83d", "weight":NaN}'
    data = PI + b'\n{"type":"message","id":"1","parentId":null,"message": ' + message + b"}"
    transcript = read_transcript(data)
    assert transcript.items[0].raw == message
    assert transcript.passed_over == ()


def test_deep_nesting_is_told_not_raised() -> None:
    deep = b'{"type":"message","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    transcript = read_transcript(PI + b"\n" + deep + b"\n" + PI_USER)
    assert len(transcript.items) == 1
    assert transcript.passed_over[0].startswith("line 2: ")


SAMPLES = [PI, PI_USER, PI_REPLY, CLAUDE, CODEX, FLAT, CHAT, REQUEST, LIST]


@settings(deadline=None)  # the machine may be busy
@given(st.binary(max_size=300), st.lists(st.sampled_from(SAMPLES), max_size=4))
def test_any_bytes_are_read_or_refused_in_our_own_words(noise: bytes, lines: list[bytes]) -> None:
    for data in (noise, b"\n".join([*lines, noise]), b"\n".join([noise, *lines])):
        try:
            transcripts = read_transcripts(data)
        except FormatError:
            continue
        for transcript in transcripts:
            for request in transcript.requests:
                assert all(0 <= at < len(transcript.items) for at in request.shown)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("type", "id", "parentId", "uuid", "parentUuid", "message", "role"),
                    *("content", "payload"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
KEYS = (
    "type id parentId uuid parentUuid message role content payload timestamp usage summary name "
    "params tool_calls firstKeptEntryId firstKeptEntryIndex retainedTail version isSidechain "
    "compactMetadata subtype"
)
TYPES = (
    "session message compaction branch_summary custom_message user assistant system response_item "
    "compacted event_msg turn_context session_meta"
)


def words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


@settings(deadline=None)  # the machine may be busy
@given(
    st.sampled_from([PI, CLAUDE, CODEX, FLAT]),
    st.lists(st.tuples(st.dictionaries(words(KEYS), JSON, max_size=6), words(TYPES)), max_size=6),
)
def test_lines_of_the_wrong_shape_never_raise(
    first: bytes, rest: list[tuple[dict[str, Any], str]]
) -> None:
    lines = [json.dumps({**fields, "type": kind}).encode() for fields, kind in rest]
    lines += [json.dumps({**fields, "role": kind}).encode() for fields, kind in rest]
    random.Random(len(lines)).shuffle(lines)
    data = b"\n".join([first] * (len(lines) + 1) + lines)
    for transcript in read_transcripts(data):
        for request in transcript.requests:
            assert all(0 <= at < len(transcript.items) for at in request.shown)
            assert all(0 <= at < len(transcript.items) for at in request.answered)
