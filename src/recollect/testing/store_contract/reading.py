"""What holds for reading segments: order of arrival, pages, any text."""

from __future__ import annotations

from dataclasses import replace

from recollect.testing.store_contract.examples import (
    START,
    conversation,
    ids,
    passages,
    rising,
    segment,
    segments,
)
from recollect.testing.store_contract.harness import Spaces
from recollect.values.batch import Batch
from recollect.values.recall import CandidateQuery
from recollect.values.segment import SegmentId

ODD_TEXTS = (
    "emoji 🙂👩‍👩‍👧‍👦🏳️‍🌈 and 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 beyond the first plane",
    "你好，世界。数据库连接失败：请重试。日本語のテキスト、한국어 문장",
    "שלום עולם مرحبا بالعالم \u202eright to left\u202c",
    "combining e\u0301 a\u0308\u0323 क्षि and \u200bzero\u200d width\ufeff",
    "quotes ' \" ` '' \"\" $$ %s %(x)s ? :name @x \\ \\\\ \\' \\n -- /* */ ; DROP TABLE x;",
    "line\nfeeds\r\nand\ttabs\x0b\x0c\x1b[31m\x7f\x85\u2028\u2029 controls \x01\x02\x1f",
    '{"json": [1, 2, {"a": null}]} <b>html &amp;</b> \\u0000 \\x00 \ufffd \ufffe \U0010ffff',
    "   white space at both ends \u3000 ",
    " ",
    "1",
)


async def arrival_gives_the_order(spaces: Spaces) -> None:
    """Sequences rise in the order in which segments were written, whenever they were said."""
    store = await spaces.open()
    late, early = segments(3, session="late", said_at=START + 1e6), segments(3, session="early")
    await store.write(Batch(at=START, segments=late))
    await store.write(Batch(at=START, segments=early))
    await store.write(Batch(at=START, segments=(late[0], *segments(1, session="third"))))
    page = await store.page()
    assert tuple(row.segment.id for row in page) == (
        *ids(late),
        *ids(early),
        *ids(segments(1, session="third")),
    )
    assert rising([row.sequence for row in page])
    assert page[0].sequence > 0
    assert await store.segments([page[4].segment.id]) == (page[4],)


async def pages_join_into_all(spaces: Spaces) -> None:
    """Pages follow each other without gap or repeat, in both directions."""
    store = await spaces.open()
    new = segments(23)
    await store.write(Batch(at=START, segments=new))
    for descending in (False, True):
        after, seen = 0, []
        while page := await store.page(after=after, limit=5, descending=descending):
            assert len(page) <= 5
            seen += [row.segment.id for row in page]
            assert len(seen) <= len(new), "a page repeats what was shown"
            after = page[-1].sequence
        assert tuple(seen) == (ids(new)[::-1] if descending else ids(new))
    assert await store.page(limit=1, descending=True) == (await store.page())[-1:]


async def pages_of_a_session_hold_only_it(spaces: Spaces) -> None:
    """A page of one session leaves out the others, in both directions."""
    store = await spaces.open()
    one, two = segments(8, session="one"), segments(8, first=100, session="two")
    for pair in zip(one, two, strict=True):
        await store.write(Batch(at=START, segments=pair))
    everything = await store.page()
    wanted = [row for row in everything if row.segment.session == "two"]
    assert len(wanted) == 8
    assert list(await store.page(session="two")) == wanted
    third = wanted[2].sequence
    assert list(await store.page(session="two", after=third, limit=3)) == wanted[3:6]
    assert list(await store.page(session="two", after=third, descending=True)) == wanted[:2][::-1]
    assert await store.page(session="unheard of") == ()


async def neighbours_are_found_by_sequence(spaces: Spaces) -> None:
    """The segments just before and after one are those beside it in the order of arrival."""
    store = await spaces.open()
    new = segments(9)
    await store.write(Batch(at=START, segments=new[:4]))
    await store.write(Batch(at=START, segments=new[4:]))
    (middle,) = await store.segments([new[4].segment.id])
    before = await store.page(after=middle.sequence, limit=1, descending=True)
    after = await store.page(after=middle.sequence, limit=1)
    assert [row.segment.id for row in (*before, *after)] == [new[3].segment.id, new[5].segment.id]


async def segments_come_in_the_order_asked(spaces: Spaces) -> None:
    """Segments come in the order of the ids; those that are not there are left out."""
    store = await spaces.open()
    new = segments(6)
    await store.write(Batch(at=START, segments=new))
    unknown = SegmentId("0" * 32)
    wanted = [ids(new)[place] for place in (4, 0, 5, 2)]
    stored = await store.segments([wanted[0], unknown, *wanted[1:]])
    assert [row.segment.id for row in stored] == wanted
    assert await store.segments([]) == ()
    assert await store.segments([unknown]) == ()
    assert await store.known(one for one in (*ids(new)[:2], unknown)) == frozenset(ids(new)[:2])
    assert await store.known([]) == frozenset()


async def many_ids_can_be_asked_at_once(spaces: Spaces) -> None:
    """Asking for more ids than an engine takes as parameters works too."""
    store = await spaces.open()
    new = segments(4)
    await store.write(Batch(at=START, segments=new))
    many = [SegmentId(f"{number:032x}") for number in range(40_000)]
    assert await store.known([*many, *ids(new)]) == frozenset(ids(new))
    stored = await store.segments([*many, *ids(new)])
    assert tuple(row.segment.id for row in stored) == ids(new)


async def any_text_comes_back(spaces: Spaces) -> None:
    """Texts of any script and any length come back character by character."""
    store = await spaces.open()
    long = ("Grüße, 世界 🙂 'quoted' \\ " * 9_000)[:200_000]
    new = conversation((*ODD_TEXTS, long))
    new = (*new, segment(ODD_TEXTS[0], session=ODD_TEXTS[4], tool=ODD_TEXTS[1]))
    written = await store.write(Batch(at=START, segments=new))
    assert written.stored == ids(new)
    stored = await store.segments(ids(new))
    assert [row.segment for row in stored] == [one.segment for one in new]
    assert [row.segment for row in await store.page(session=ODD_TEXTS[4])] == [new[-1].segment]


async def passages_are_spans_of_characters(spaces: Spaces) -> None:
    """Passages come back as written, and their texts are cut by characters, not bytes."""
    store = await spaces.open()
    said = "👩‍👩‍👧‍👦 " + "数据库连接失败。请重试🙂 e\u0301 " * 120
    new = segment(said)
    marked = tuple(
        replace(one, embedded=ordinal != 1) for ordinal, one in enumerate(passages(said))
    )
    assert len(marked) > 3
    await store.write(Batch(at=START, segments=(replace(new, passages=marked),)))
    stored = await store.passages(new.segment.id)
    assert [(one.start, one.end, one.embedded) for one in stored] == [
        (one.start, one.end, one.embedded) for one in marked
    ]
    waiting = await store.unembedded("example-256", limit=100)
    assert {one.ordinal: one.text for one in waiting} == {
        ordinal: said[one.start : one.end] for ordinal, one in enumerate(marked) if one.embedded
    }
    assert await store.passages(SegmentId("0" * 32)) == ()


async def noise_is_kept_and_not_indexed(spaces: Spaces) -> None:
    """Noise, empty texts included, is in the archive and never among the candidates."""
    store = await spaces.open()
    empty = segment("", noise="empty")
    noisy = segment("thanks thanks", parent=empty.segment.key, noise="thanks")
    heard = segment("thanks for the database", parent=noisy.segment.key)
    new = (empty, noisy, heard)
    written = await store.write(Batch(at=START, segments=new))
    assert written.stored == ids(new)
    assert [row.segment for row in await store.page()] == [one.segment for one in new]
    found = await store.candidates(CandidateQuery(words=heard.passages[0].words))
    assert {one.segment for one in found.passages} == {heard.segment.id}
    assert found.documents == 1
    stats = await store.stats()
    assert (stats.segments, stats.noise, stats.passages) == (3, 2, 1)
    assert {one.segment for one in await store.unembedded("e", limit=9)} == {heard.segment.id}
