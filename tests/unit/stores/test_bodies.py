"""Bodies of the ledger come back as they were, however they were packed."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.adapters.stores.sqlite.rows import pack_body, unpack_body


@given(st.binary(max_size=400) | st.binary(max_size=60).map(lambda some: b"\x01Z" + some))
def test_any_bytes_come_back(body: bytes) -> None:
    assert unpack_body(pack_body(body)) == body
    assert unpack_body(pack_body(body * 9)) == body * 9


def test_a_message_takes_less_than_packed_by_itself() -> None:
    body = b'{"role":"user","content":[{"type":"text","text":"How does the quay crane work?"}]}'
    assert len(pack_body(body)) < 0.7 * len(zlib.compress(body))


def test_what_an_earlier_version_wrote_is_read_as_it_is() -> None:
    body = b'{"turn":1,"lines":[]}' * 40
    assert unpack_body(body) == body


def test_a_torn_body_is_told() -> None:
    packed = pack_body(b"cargo and crane and winch over the quay " * 9)
    for torn in (packed[:-3], packed[:9], packed[:5] + b"x" + packed[6:]):
        with pytest.raises(ValueError, match="torn"):
            unpack_body(torn)
