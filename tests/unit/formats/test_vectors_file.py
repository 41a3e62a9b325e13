"""vectors.bin: the layout of OpenClaw's notes, truncated files, refusals."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.formats.openclaw_files import read_vectors, write_vectors
from recollect.errors import FormatError


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


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
ENTRIES = [("abc", floats(1, 2)), ("文字", floats(-0.5, 0))]


def written(entries: list[tuple[str, bytes]], dimensions: int = 2) -> bytes:
    return b"".join(write_vectors(entries, dimensions=dimensions))


def entries_of(data: bytes) -> list[tuple[str, bytes]]:
    found = read_vectors(data)
    return [(name, found.values(name)) for name in found.offsets]


def test_a_file_is_laid_out_as_the_notes_say() -> None:
    assert written(ENTRIES) == LAYOUT
    assert entries_of(LAYOUT) == ENTRIES
    found = read_vectors(LAYOUT)
    assert (found.dimensions, found.passed_over) == (2, ())


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
        st.binary(min_size=12, max_size=12),
        max_size=8,
    )
)
def test_what_was_written_is_read(entries: dict[str, bytes]) -> None:
    data = written(list(entries.items()), dimensions=3)
    assert dict(entries_of(data)) == entries
    assert written(entries_of(data), dimensions=3) == data


def test_ids_that_are_not_utf8_are_written_as_they_were() -> None:
    data = LAYOUT.replace(b"abc", b"a\xff\xfe")
    assert written(entries_of(data)) == data


def test_a_truncated_file_keeps_the_vectors_before_its_end() -> None:
    first = len(written(ENTRIES[:1]))
    for size in range(16, len(LAYOUT)):
        found = read_vectors(LAYOUT[:size])
        whole = int(size >= first)
        left = size - (first if whole else 16)
        assert list(found.offsets) == ["abc"] * whole
        assert found.passed_over == (
            f"vectors.bin: {whole} of 2 vectors read, {left} bytes passed over",
        )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (LAYOUT + b"xx", "2 of 2 vectors read, 2 bytes"),
        (written([ENTRIES[0], ENTRIES[0]]), "1 of 2 vectors read"),
        (LAYOUT[:12] + b"\xff\xff\xff\xff" + LAYOUT[16:], "2 of 4,294,967,295 vectors read"),
    ],
)
def test_what_does_not_fit_is_told(data: bytes, told: str) -> None:
    assert told in read_vectors(data).passed_over[0]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "header of 16 bytes"),
        (LAYOUT[:15], "header of 16 bytes"),
        (b"VMEN" + LAYOUT[4:], "must begin with VMEM"),
        (LAYOUT[:4] + b"\x02" + LAYOUT[5:], "not version 2"),
        (LAYOUT[:8] + bytes(4) + LAYOUT[12:], "0 dimensions"),
    ],
)
def test_other_files_are_refused(data: bytes, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        read_vectors(data)
