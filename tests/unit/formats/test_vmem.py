"""VMEM v1: the layout of the notes, torn files, refusals."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.formats.openclaw_files import read_vmem
from recollect.errors import FormatError


def vector(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def write_vmem(entries: Iterable[tuple[str, bytes]], *, dimensions: int) -> bytes:
    ids = [(name.encode("utf-8", "surrogateescape"), values) for name, values in entries]
    written = [struct.pack("<H", len(name)) + name + values for name, values in ids]
    return struct.pack("<4sIII", b"VMEM", 1, dimensions, len(written)) + b"".join(written)


LAYOUT = bytes.fromhex(
    "564d454d"  # VMEM
    "01000000"
    "02000000"  # two dimensions
    "02000000"  # two entries
    "0300616263"  # "abc"
    "0000803f00000040"  # 1, 2
    "0600e69687e5ad97"  # 文字, six bytes of UTF-8
    "000000bf00000000"  # -0.5, 0
)


def test_a_file_is_laid_out_as_the_notes_say() -> None:
    entries = [("abc", vector(1, 2)), ("文字", vector(-0.5, 0))]
    assert write_vmem(entries, dimensions=2) == LAYOUT
    reading = read_vmem(LAYOUT)
    assert reading.dimensions == 2
    assert [(e.id, LAYOUT[e.start : e.end]) for e in reading.entries] == entries
    assert reading.passed_over == ()


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
            st.binary(min_size=12, max_size=12),
        ),
        max_size=8,
    )
)
def test_what_was_written_is_read(entries: list[tuple[str, bytes]]) -> None:
    data = write_vmem(entries, dimensions=3)
    reading = read_vmem(data)
    assert [(e.id, data[e.start : e.end]) for e in reading.entries] == entries
    again = write_vmem([(e.id, data[e.start : e.end]) for e in reading.entries], dimensions=3)
    assert again == data


def test_a_torn_file_keeps_what_stands_before_the_tear() -> None:
    first = len(write_vmem([("abc", vector(1, 2))], dimensions=2))
    for size in range(16, len(LAYOUT)):
        reading = read_vmem(LAYOUT[:size])
        assert [entry.id for entry in reading.entries] == (["abc"] if size >= first else [])
        assert len(reading.passed_over) == 1
        assert (
            f"of 2 vectors; {size - (first if size >= first else 16)} bytes"
            in (reading.passed_over[0])
        )


def test_bytes_behind_the_end_are_told() -> None:
    reading = read_vmem(LAYOUT + b"xx")
    assert len(reading.entries) == 2
    assert reading.passed_over == ("2 bytes behind the last vector passed over",)


def test_ids_that_are_not_utf8_are_written_as_they_were() -> None:
    data = LAYOUT.replace(b"abc", b"a\xff\xfe")
    reading = read_vmem(data)
    values = [data[e.start : e.end] for e in reading.entries]
    names = [e.id for e in reading.entries]
    assert write_vmem(zip(names, values, strict=True), dimensions=2) == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "less than its header"),
        (LAYOUT[:15], "less than its header"),
        (b"VMEN" + LAYOUT[4:], "does not begin with VMEM"),
        (LAYOUT[:4] + b"\x02" + LAYOUT[5:], "version 2 is not known"),
        (LAYOUT[:8] + bytes(4) + LAYOUT[12:], "0 dimensions"),
    ],
)
def test_other_files_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_vmem(data)
