"""Server-sent events: the framing, however the network tears it."""

from hypothesis import given
from hypothesis import strategies as st

from recollect.adapters.providers.chat_model import EventReader, ServerEvent


def read(*pieces: bytes) -> list[ServerEvent]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + list(reader.finish())


def test_names_data_comments_and_unknown_fields() -> None:
    stream = b": hello\nevent: ping\nid: 7\nretry: 10\ndata: {}\n\ndata:one\ndata: two\n\n"
    assert read(stream) == [ServerEvent(name="ping", data="{}"), ServerEvent(data="one\ntwo")]


def test_an_event_without_data_is_none_and_leaves_no_name_behind() -> None:
    assert read(b"event: ping\n\ndata: x\n\n") == [ServerEvent(data="x")]


def test_old_llama_cpp_errors_are_events_named_error() -> None:
    assert read(b'error: {"code":500}\n\n') == [ServerEvent(name="error", data='{"code":500}')]


lines = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1)


@given(
    events=st.lists(st.lists(lines.filter(lambda line: line[0] != " "), min_size=1), max_size=5),
    ending=st.sampled_from(["\n", "\r\n"]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_the_same_bytes_give_the_same_events_in_any_pieces(
    events: list[list[str]], ending: str, cuts: list[int]
) -> None:
    written = "".join(
        "".join(f"data: {line}{ending}" for line in event) + ending for event in events
    ).encode()
    places = sorted({min(cut, len(written)) for cut in cuts})
    pieces = [
        written[start:end] for start, end in zip([0, *places], [*places, len(written)], strict=True)
    ]
    assert [event.data for event in read(*pieces)] == ["\n".join(event) for event in events]
