"""Both pi recordings: read, migrated and written as version 3, as Node would write them."""

import gzip
from pathlib import Path

import pytest
from tests.unit.session.node_pi import assert_node_agrees, node, session_bytes

from recollect.core.formats.json_text import decode, stringify
from recollect.core.formats.pi_session import PiSession, build_context, migrate, read_session
from recollect.core.formats.transcripts import read_transcript

RECORDINGS = ("pi_before-compaction", "pi_large-session")


@pytest.fixture(params=RECORDINGS)
def recorded(request: pytest.FixtureRequest, data: Path) -> bytes:
    path = data / "transcripts" / f"{request.param}.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"{path.name} is not among the data")
    return gzip.decompress(path.read_bytes())


def migrated(recorded: bytes) -> PiSession:
    session = read_session(recorded)
    assert session.version == 1
    assert not session.notes
    return migrate(session)


def test_every_line_of_the_migrated_file_is_nodes_own_spelling(recorded: bytes) -> None:
    session = migrated(recorded)
    written = session_bytes(session)
    assert len(session.entries) > 1000
    assert node("stringify_again.mjs", written) == written
    assert_node_agrees(written, build_context(session.entries))


def test_what_is_written_reads_back_as_it_is(recorded: bytes) -> None:
    session = migrated(recorded)
    written = session_bytes(session)
    again = read_session(written)
    assert again.version == 3
    assert session_bytes(migrate(again)) == written
    assert [entry.value for entry in again.entries] == [entry.value for entry in session.entries]
    assert written == session_bytes(migrated(recorded)), "the same file gets the same ids"


def test_no_message_is_changed_by_migrating(recorded: bytes) -> None:
    before = [entry.message for entry in read_session(recorded).entries if entry.message]
    after = [entry.message for entry in migrated(recorded).entries if entry.message]
    assert after == before


def test_the_importing_reader_shows_the_same_messages(recorded: bytes) -> None:
    session = migrated(recorded)
    transcript = read_transcript(session_bytes(session))
    answers = [entry for entry in session.entries if entry.role == "assistant"]
    for at in (-1, len(answers) // 2, 3):
        request = transcript.requests[at]
        theirs = [decode(transcript.items[item].raw) for item in request.shown]
        ours = build_context(session.entries, answers[at].parent_id).messages
        assert [stringify(one) for one in theirs] == [stringify(one) for one in ours]
