"""pi session files: what is read, migrated, written, and shown again."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import at_size
from tests.unit.session.node_pi import assert_node_agrees, session_bytes

from recollect.core.formats.pi_session import (
    PiSession,
    Stamp,
    build_context,
    build_history,
    compaction_value,
    custom_value,
    entry_line,
    header_value,
    message_value,
    migrate,
    read_session,
    session_info_value,
)
from recollect.core.formats.summaries import PI_CLOSING, PI_OPENING

AT = "2026-03-01T10:00:00.000Z"
HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": AT, "cwd": "/w"}


def file_of(*values: dict[str, Any]) -> bytes:
    return b"".join(entry_line(value) + b"\n" for value in values)


def said(name: str, parent: str | None, text: str = "", role: str = "user") -> dict[str, Any]:
    content = [{"type": "text", "text": text or name}]
    message: dict[str, Any] = {"role": role, "content": content, "timestamp": 1}
    return message_value(Stamp(id=name, parent_id=parent, timestamp=AT), message)


def cut(name: str, parent: str, *, kept: str | None, summary: str = "the past") -> dict[str, Any]:
    stamp = Stamp(id=name, parent_id=parent, timestamp=AT)
    value = compaction_value(
        stamp, summary=summary, first_kept_entry_id=kept or "", tokens_before=9
    )
    if kept is None:
        del value["firstKeptEntryId"]
    return value


def branch_summary(stamp: Stamp, summary: str) -> dict[str, Any]:
    from_id = stamp.parent_id or "root"
    return {"type": "branch_summary", **stamp.fields(), "fromId": from_id, "summary": summary}


def texts(session: PiSession, leaf: str | None = None) -> list[str]:
    messages = build_context(session.entries, leaf).messages
    return [message["content"][0]["text"] for message in messages]


def wrapped(summary: str) -> str:
    return PI_OPENING + summary + PI_CLOSING


def test_lines_end_at_newlines_and_nowhere_else() -> None:
    text = "one\u2028two\u2029three\u0085four\x0bfive"
    session = read_session(file_of(HEADER, said("a", None, text)))
    assert len(session.entries) == 1
    assert texts(session) == [text]
    assert not session.notes


@pytest.mark.parametrize("keep", [1, 10, 40])
def test_a_last_line_that_was_cut_off_is_left_out_and_told(keep: int) -> None:
    whole = file_of(HEADER, said("a", None))
    torn = entry_line(said("b", "a"))[:-keep]
    session = read_session(whole + torn)
    assert [entry.id for entry in session.entries] == ["a"]
    assert session.torn_bytes == len(torn)
    assert session.notes == ("the last line was cut off while it was written; it is left out",)


def test_a_last_line_without_its_line_end_is_whole() -> None:
    session = read_session(file_of(HEADER, said("a", None)).rstrip(b"\n"))
    assert [entry.id for entry in session.entries] == ["a"]
    assert not session.torn_bytes
    assert not session.notes


def test_bad_lines_are_passed_over_and_told_by_number() -> None:
    data = (
        file_of(HEADER, said("a", None)) + b'{"half":\n[1]\n\xff\xfe\n\n' + file_of(said("b", "a"))
    )
    session = read_session(data)
    assert [entry.id for entry in session.entries] == ["a", "b"]
    assert [note.split(":")[0] for note in session.notes] == ["line 3", "line 4", "line 5"]
    assert texts(session) == ["a", "b"]


def test_unknown_entries_and_unknown_fields_are_kept() -> None:
    odd = {"type": "hologram", "id": "x", "parentId": "a", "timestamp": AT, "beams": [1, 2.5]}
    data = file_of({**HEADER, "mood": "fine"}, said("a", None), odd, said("b", "x"))
    session = read_session(data)
    assert session_bytes(session) == data
    assert texts(session) == ["a", "b"], "the chain leads over it"


def test_lines_keep_their_own_spelling() -> None:
    said_oddly = b'{"role":"user","content":"\\u00e9", "n":1.0}'
    line = b'{ "type":"message", "id":"a","parentId":null,"message":' + said_oddly + b"}"
    session = read_session(file_of(HEADER) + line + b"\n")
    assert session.entries[0].line == line
    assert session_bytes(migrate(session)).endswith(line + b"\n")


# versions 1 and 2


def version_1(*values: dict[str, Any]) -> PiSession:
    header = {key: value for key, value in HEADER.items() if key != "version"}
    return read_session(file_of(header, *values))


def bare(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "timestamp": AT, "message": {"role": role, "content": text}}


def test_version_1_gets_a_chain_of_ids_and_pis_order_of_keys() -> None:
    session = migrate(version_1(bare("one"), bare("two")))
    first, second = session.entries
    assert list(first.value) == ["type", "timestamp", "message", "id", "parentId"]
    assert (first.parent_id, second.parent_id) == (None, first.id)
    assert session.header is not None
    assert list(session.header.value) == ["type", "id", "timestamp", "cwd", "version"]
    assert session.header.version == 3


def test_the_index_of_version_1_counts_the_header() -> None:
    compaction = {
        "type": "compaction",
        "timestamp": AT,
        "summary": "so far",
        "firstKeptEntryIndex": 2,
        "tokensBefore": 7,
    }
    session = migrate(version_1(bare("one"), bare("two"), compaction, bare("three")))
    _, two, compacted, _ = session.entries
    assert compacted.first_kept_id == two.id
    assert "firstKeptEntryIndex" not in compacted.value
    shown = build_context(session.entries).messages
    assert [message["content"] for message in shown[1:]] == ["two", "three"]


def test_version_2_renames_the_role_and_nothing_else() -> None:
    hook = {"role": "hookMessage", "customType": "t", "content": "hi", "display": True}
    entry = message_value(Stamp(id="a", parent_id=None, timestamp=AT), hook)
    session = migrate(read_session(file_of({**HEADER, "version": 2}, entry)))
    assert session.entries[0].value == {**entry, "message": {**hook, "role": "custom"}}
    assert list(session.entries[0].value["message"]) == list(hook)


# what the model is shown


def test_the_last_compaction_on_the_path_counts() -> None:
    data = file_of(
        HEADER,
        said("a", None),
        said("b", "a"),
        cut("c1", "b", kept="b", summary="first"),
        said("d", "c1"),
        cut("c2", "d", kept="b", summary="second"),
        said("e", "c2"),
    )
    session = read_session(data)
    assert texts(session) == [wrapped("second"), "b", "d", "e"]
    assert texts(session, "d") == [wrapped("first"), "b", "d"]
    assert texts(session, "b") == ["a", "b"]
    history = build_history(session.entries).messages
    assert [message["content"][0]["text"] for message in history] == ["a", "b", "d", "e"]


def test_a_retained_tail_stands_in_for_what_came_before() -> None:
    tail = [{"role": "user", "content": [{"type": "text", "text": "kept"}]}]
    compaction = {**cut("c", "a", kept="a"), "retainedTail": tail}
    data = file_of(HEADER, said("a", None), compaction, said("d", "c"))
    assert texts(read_session(data)) == [wrapped("the past"), "kept", "d"]


# ids and times


# spelling, against Node

STAMP = Stamp(id="0", parent_id="p", timestamp=AT)


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        (message_value(STAMP, {}), "type id parentId timestamp message"),
        (
            compaction_value(
                STAMP, summary="s", first_kept_entry_id="k", tokens_before=1, details={}
            ),
            "type id parentId timestamp summary firstKeptEntryId tokensBefore details fromHook",
        ),
        (
            compaction_value(
                STAMP, summary="s", first_kept_entry_id="k", tokens_before=1, from_hook=None
            ),
            "type id parentId timestamp summary firstKeptEntryId tokensBefore",
        ),
        (session_info_value(STAMP, name="n"), "type id parentId timestamp name"),
        (
            custom_value(STAMP, custom_type="c", data=1),
            "type customType data id parentId timestamp",
        ),
        (custom_value(STAMP, custom_type="c"), "type customType id parentId timestamp"),
        (header_value(session_id="s", timestamp=AT, cwd="/w"), "type version id timestamp cwd"),
    ],
)
def test_keys_stand_in_pis_order(value: dict[str, Any], keys: str) -> None:
    assert list(json.loads(entry_line(value))) == keys.split()


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(), max_size=12),
        st.sampled_from(["\ud83d", "\udc00x", "\u2028", "\x00\x1f\x7f", "👍", '"\\/', 1e21, 1e-7]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.text(max_size=4), st.sampled_from(["10", "2", "0", "01", "-1", "4294967295"])
            ).filter(lambda key: key != "__proto__"),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "toolResult", "custom"]), "content": anything},
    optional={"details": anything, "timestamp": st.integers(0, 2**45)},
)


@st.composite
def sessions(draw: st.DrawFn) -> bytes:
    """A session with every kind of entry, whatever they hold, and branches."""
    values: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 14))):
        parent = draw(st.sampled_from([f"{at}" for at in range(number)])) if number else None
        if number and draw(st.integers(0, 3)):
            parent = f"{number - 1}"
        stamp = Stamp(id=f"{number}", parent_id=parent, timestamp=AT)
        text = draw(st.text(st.characters(), max_size=9))
        kind = draw(st.sampled_from("mmmcbxyltus"))
        if kind == "m":
            value = message_value(stamp, draw(message))
        elif kind == "c":
            kept = f"{draw(st.integers(0, 14))}"
            value = compaction_value(
                stamp,
                summary=text,
                first_kept_entry_id=kept,
                tokens_before=draw(st.integers(0, 10**9)),
                details=draw(anything),
                retained_tail=draw(st.none() | st.lists(message, max_size=2)),
            )
        elif kind == "b":
            value = branch_summary(stamp, text)
        elif kind == "x":
            value = {
                "type": "custom_message",
                "customType": text,
                "content": text,
                "display": True,
                **stamp.fields(),
            }
        elif kind == "y":
            value = custom_value(stamp, custom_type=text, data=draw(anything))
        elif kind == "l":
            value = {"type": "label", **stamp.fields(), "targetId": "0", "label": text}
        elif kind == "u":
            value = {"type": "unheard-of", **stamp.fields(), "data": draw(anything)}
        else:
            value = session_info_value(stamp, name=text)
        values.append(value)
    return file_of(HEADER, *values)


@settings(max_examples=at_size(ci=12, full=25))
@given(sessions())
def test_node_spells_and_shows_any_session_as_we_do(data: bytes) -> None:
    session = read_session(data)
    assert not session.notes
    assert session_bytes(session) == data
    assert b"".join(entry_line(entry.value) + b"\n" for entry in session.entries) in data
    assert_node_agrees(data, build_context(session.entries))
