"""segments.jsonl and knowledge.jsonl: read leniently, written as Node writes them."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import at_size

from recollect.core.formats.json_text import stringify
from recollect.core.formats.openclaw_files import (
    foreign_of,
    read_knowledge_lines,
    read_segment_lines,
    sort_facts,
    write_knowledge_line,
    write_segment_line,
)
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import Segment, SegmentId

NODE = Path(__file__).parents[2] / "node"
SEGMENT = Segment(
    id=SegmentId("0" * 32),
    session="a session",
    key=EntryKey("k"),
    message_id=MessageId("m"),
    role="user",
    text="said",
    tokens=3,
    said_at=1771000000.125,
    source="request",
    trust="high",
)
FACT = Fact(id=FactId("f1"), type="decision", content="Use it", at=1771000000.0)


def node(script: str, *arguments: str, stdin: str = "") -> bytes:
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node here to compare with")
    done = subprocess.run(
        [program, str(NODE / script), *arguments],
        input=stdin.encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (4.5e-05, "0.000045"),
        (100.0, "100"),
        (-0.0, "0"),
        (-0.5, "-0.5"),
        (2**60, "1152921504606847000"),
        (10**400, "null"),
        (float("nan"), "null"),
        (True, "true"),
        ("\ud83d", '"\\ud83d"'),
        ("\u2028\u007f", '"\u2028\u007f"'),
        ('\x00\x1f\b\f\n\r\t"\\', '"\\u0000\\u001f\\b\\f\\n\\r\\t\\"\\\\"'),
        ({"b": [], "a": {}}, '{"b":[],"a":{}}'),
    ],
)
def test_values_are_spelled_as_javascript_does(value: object, spelled: str) -> None:
    assert stringify(value) == spelled


@settings(max_examples=at_size(ci=6, full=12))
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=6).filter(lambda key: not key.isdigit() and key != "__proto__"),
            st.one_of(
                st.text(st.characters(), max_size=20),
                st.floats(allow_nan=False, allow_infinity=False),
                st.integers(-(2**53), 2**53),
                st.lists(st.booleans() | st.none(), max_size=3),
            ),
            max_size=6,
        ),
        min_size=30,
        max_size=60,
    )
)
def test_node_spells_any_object_the_same(objects: list[dict[str, object]]) -> None:
    ours = "".join(stringify(value) + "\n" for value in objects)
    assert node("stringify_again.mjs", stdin=ours) == ours.encode()


def test_bad_lines_are_told_and_hide_no_others() -> None:
    good = write_segment_line(SEGMENT).encode()
    lines = [
        b"\n",
        b"{cut off\n",
        b"\xff\xfe\n",
        b"[1]\n",
        b'{"id":"a","sessionId":"s","role":"user"}\n',
        b'{"id":"a","sessionId":"s","role":"alien","content":"x"}\n',
        b'{"id":7,"sessionId":"s","role":"user","content":["x"]}\n',
        good,
    ]
    told: list[str] = []
    found = list(read_segment_lines(lines, told))
    assert [one.number for one in found] == [8]
    assert told == [
        "line 2: not JSON, or cut off",
        "line 3: not UTF-8 text",
        "line 4: not a JSON object but list",
        "line 5: no text in content",
        "line 6: a role that is not known",
        "line 7: no text in id and content",
    ]
    told.clear()
    facts = list(read_knowledge_lines([b'{"id":"a","content":"x","type":"rumour"}'], told))
    assert (facts, told) == ([], ["line 1: a type that is not known"])


def test_files_of_node_come_back_byte_for_byte(tmp_path: Path) -> None:
    for newline in ("yes", "no"):
        node("write_openclaw_files.mjs", str(tmp_path), "40", newline)
        told: list[str] = []
        with (tmp_path / "segments.jsonl").open("rb") as file:
            segments = list(read_segment_lines(file, told))
        assert len(segments) == 40
        back = [write_segment_line(replace(SEGMENT, foreign=one.line)) for one in segments]
        assert "".join(back).encode() == (tmp_path / "segments.jsonl").read_bytes()
        with (tmp_path / "knowledge.jsonl").open("rb") as file:
            facts = [
                replace(
                    FACT,
                    id=FactId(one.id),
                    at=one.said_at or 0.0,
                    superseded_by=FactId(one.superseded_by) if one.superseded_by else None,
                    foreign=foreign_of(one.number, one.line),
                )
                for one in read_knowledge_lines(file, told)
            ]
        by_time = sorted(facts, key=lambda fact: (fact.at, fact.id))
        assert by_time != facts
        kept = "".join(write_knowledge_line(fact) for fact in sort_facts(by_time))
        assert kept.encode() == (tmp_path / "knowledge.jsonl").read_bytes()
        assert told == []
