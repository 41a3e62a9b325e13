"""What holds for a store as a whole: isolation, numbers, closing, many callers at once."""

import asyncio
from dataclasses import replace

from tests.store_contract.examples import (
    EMBEDDER,
    LATER,
    SESSION,
    START,
    asked,
    compaction,
    conversation,
    fact,
    fact_vectors,
    full_batch,
    ids,
    passages,
    piece,
    segment,
    segments,
    session_write,
    vectors,
)
from tests.store_contract.harness import Spaces, claim_all, contents
from tests.store_contract.model import ReferenceModel

from recollect.core.formats.stored_records import join_state, split_state
from recollect.core.ports import Store
from recollect.core.values.batch import Batch, NewJob, WriteResult
from recollect.core.values.edit import Cut, Edit, LeaveOut
from recollect.core.values.fact import EvidenceSpan, FactId
from recollect.core.values.history import SessionState
from recollect.core.values.message import MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import CandidateQuery, FactQuery
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import (
    BODY_KINDS,
    BodyKind,
    ForgetOrder,
    NewBody,
    RewriteOrder,
    StoredBody,
)
from recollect.errors import StoreError


async def spaces_do_not_see_each_other(spaces: Spaces) -> None:
    """Two spaces with the same sessions, texts and ids share nothing, statistics included."""
    store, two = await spaces.open("one"), await spaces.open("two")
    await store.write(full_batch(0))
    assert (await contents(two, SESSION))["page"] == ()
    written = await two.write(full_batch(0))
    assert written.stored == ids(full_batch(0).segments)
    before = await contents(two, SESSION)
    await store.write(full_batch(1))
    await store.pause("embed")
    await store.write(Batch(at=START, facts=(fact("fact-0", content="otherwise"),)))
    await store.forget(ForgetOrder(at=START, sessions=(SESSION,)))
    await store.expire(before=START + 1e6)
    assert await contents(two, SESSION) == before
    words = tuple(dict.fromkeys(full_batch(0).segments[0].passages[0].words))
    model = ReferenceModel()
    model.write(full_batch(0))
    query = CandidateQuery(words=words, vectors=(asked("q"),))
    model.expect(query, await two.candidates(query))
    places = [MessageId(new.segment.id) for new in full_batch(0).segments]
    assert await two.tombstoned(places) == frozenset()
    assert await store.tombstoned(places) == frozenset(places)
    (mine,) = await claim_all(two, now=START + 1e6, kinds=("embed",))
    assert not await store.heartbeat(mine, expires_at=START + 2e6)
    assert not await store.complete(mine, Batch(at=START))
    assert await two.complete(mine, Batch(at=START))


async def unreadable_record_hides_no_other(spaces: Spaces) -> None:
    """A segment that cannot be read is left out and told by `check`; all others are there."""
    store = await spaces.open()
    batch = full_batch(0, count=6)
    await store.write(batch)
    bad, *good = batch.segments[0], *batch.segments[1:]
    store = await spaces.damage(store, bad.segment.id)
    assert {row.segment.id for row in await store.page()} == set(ids(good))
    stored = await store.segments(ids(batch.segments))
    assert [row.segment for row in stored] == [new.segment for new in good]
    words = tuple(dict.fromkeys(word for new in good for word in new.passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q"),))
    segment_ids = {candidate.segment for candidate in (await store.candidates(query)).passages}
    assert segment_ids - {bad.segment.id} == set(ids(good))
    assert [session.session for session in await store.sessions()] == [SESSION]
    waiting = {passage.segment for passage in await store.unembedded("another", limit=5)}
    assert waiting == set(ids(good)), "a limit counts what can be read"
    problems = (await store.check()).problems
    assert problems
    assert not any(bad.segment.text[:20] in problem for problem in problems)
    written = await store.write(full_batch(1))
    assert written.stored == ids(full_batch(1).segments)
    assert await store.session(SESSION) is not None


async def unreadable_fact_hides_no_other(spaces: Spaces) -> None:
    """A fact that cannot be read is left out and told by `check`; all others are there, can be
    written and forgotten, and it goes with what it rests on, or when it is named."""
    for named in (False, True):
        store = await spaces.open(f"{named}")
        new = segments(3)
        facts = tuple(
            fact(
                f"f{place}",
                at=START + place,
                sources=ids(new[place % 2 : place % 2 + 1]),
                evidence=(EvidenceSpan(segment=new[place % 2].segment.id, start=0, end=3),),
            )
            for place in range(4)
        )
        batch = Batch(at=START, segments=new, facts=facts, fact_vectors=(fact_vectors(facts),))
        await store.write(batch)
        store = await spaces.damage_fact(store, facts[0].id)
        assert await store.facts() == facts[1:]
        assert await store.facts([fact.id for fact in facts]) == facts[1:]
        query = FactQuery(words=("fact",), vectors=(asked("q"),))
        candidates = await store.fact_candidates(query)
        assert [candidate.fact.id for candidate in candidates.facts] == ["f1", "f2", "f3"]
        assert any("fact" in problem for problem in (await store.check()).problems)
        more = fact("more", at=START + 9)
        await store.write(Batch(at=START, facts=(more,), fact_vectors=(fact_vectors((more,)),)))
        assert await store.unembedded_facts(EMBEDDER, limit=9) == ()
        done = await store.forget(ForgetOrder(at=START, segments=ids(new[1:2])))
        assert done.facts == ("f1", "f3")
        if named:
            assert (await store.forget(ForgetOrder(at=START, facts=(facts[0].id,)))).facts == (
                "f0",
            )
        else:
            done = await store.forget(ForgetOrder(at=START, segments=ids(new[:1])))
            assert done.facts == ("f0", "f2")
        assert (await store.check()).problems == ()
        assert "f0" not in {fact.id for fact in await store.facts()}


async def stats_count_what_is_there(spaces: Spaces) -> None:
    """The numbers of a store are those of what was written and forgotten."""
    store = await spaces.open()
    empty = await store.stats()
    assert (empty.segments, empty.passages, empty.tokens, dict(empty.vectors)) == (0, 0, 0, {})
    assert empty.space == store.space
    assert empty.engine
    batches = [full_batch(number, session=f"s{number}") for number in range(3)]
    for batch in batches:
        await store.write(batch)
    noise = segment("ok", session="s0", noise="filler")
    await store.write(Batch(at=START, segments=(noise,)))
    everything = [new for batch in batches for new in batch.segments]
    stats = await store.stats()
    assert (stats.segments, stats.noise) == (13, 1)
    assert stats.passages == sum(len(new.passages) for new in everything)
    tokens = sum(new.segment.tokens for new in (*everything, noise))
    assert stats.tokens == tokens
    assert dict(stats.vectors) == {EMBEDDER: 12}
    assert (stats.facts, stats.sessions, stats.turns, stats.compactions) == (3, 3, 3, 3)
    assert stats.pieces == sum(len(batch.pieces) for batch in batches)
    assert (stats.jobs_waiting, stats.jobs_dead, stats.tombstones) == (3, 0, 0)
    gone = batches[1].segments[2]
    await store.forget(ForgetOrder(at=START, segments=(gone.segment.id,)))
    stats = await store.stats()
    assert (stats.segments, stats.tombstones) == (12, 1)
    assert stats.tokens == tokens - gone.segment.tokens
    assert dict(stats.vectors) == {EMBEDDER: 11}


async def scrubbing_leaves_what_is_kept(spaces: Spaces) -> None:
    """Scrubbing says what it did, and changes nothing that is still there."""
    store = await spaces.open()
    for number in range(3):
        await store.write(full_batch(number))
    await store.forget(ForgetOrder(at=START, segments=ids(full_batch(1).segments)))
    before = await contents(store, SESSION)
    result = await store.scrub()
    assert result.done or result.cannot
    assert await contents(store, SESSION) == before
    model = ReferenceModel()
    model.write(full_batch(0))
    model.write(full_batch(2))
    words = tuple(dict.fromkeys(full_batch(2).segments[0].passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q"),))
    model.expect(query, await store.candidates(query))
    written = await store.write(full_batch(3))
    assert written.stored == ids(full_batch(3).segments)


async def closed_store_says_so(spaces: Spaces) -> None:
    """A closed store raises StoreError for everything; closing it again is fine."""
    store = await spaces.open()
    await store.write(full_batch(0))
    await spaces.close(store)
    await store.close()
    calls = (
        store.write(full_batch(1)),
        store.session(SESSION),
        store.sessions(),
        store.candidates(CandidateQuery(words=("any",))),
        store.around([full_batch(0).segments[0].segment.id], CandidateQuery()),
        store.withdraw([full_batch(0).segments[0].segment.id]),
        store.segments([full_batch(0).segments[0].segment.id]),
        store.page(),
        store.facts([FactId("fact-0")]),
        store.claim(now=START, lease_seconds=1, kinds=("embed",)),
        store.jobs(),
        store.queue(),
        store.turns(SESSION),
        store.compactions(SESSION),
        store.forget(ForgetOrder(at=START, sessions=(SESSION,))),
        store.check(),
        store.stats(),
    )
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    wrong = [repr(outcome) for outcome in outcomes if not isinstance(outcome, StoreError)]
    assert not wrong, wrong
    store = await spaces.open()
    assert len(await store.page()) == 4


async def many_callers_at_once(spaces: Spaces) -> None:
    """Fifty writes and fifty questions at once all work, and what is answered is consistent."""
    stores = [await spaces.open() for _ in range(2)]
    batches = [
        replace(full_batch(number, session=f"s{number}"), session=None) for number in range(50)
    ]
    words = tuple(dict.fromkeys(batches[7].segments[0].passages[0].words))
    query = CandidateQuery(words=words, vectors=(asked("q"),), lexical_limit=20, vector_limit=20)

    async def look(store: Store) -> None:
        candidates = await store.candidates(query)
        assert candidates.documents % 4 == 0, "half a batch was seen"
        assert len(
            {(candidate.segment, candidate.ordinal) for candidate in candidates.passages}
        ) == len(candidates.passages)
        page = await store.page(limit=1_000)
        assert len(page) % 4 == 0

    calls = [
        call
        for number, batch in enumerate(batches)
        for call in (stores[number % 2].write(batch), look(stores[(number + 1) % 2]))
    ]
    await asyncio.gather(*calls)
    model = ReferenceModel()
    for batch in batches:
        model.write(batch)
    for store in stores:
        model.expect(query, await store.candidates(query))
        assert len(await store.page()) == 200
    assert (await stores[0].stats()).pieces == 250


async def writes_and_forgetting_at_once(spaces: Spaces) -> None:
    """What is forgotten while it is being written is gone in the end, or never came."""
    stores = [await spaces.open() for _ in range(2)]
    new = segments(20)
    batches = [
        Batch(
            at=START,
            segments=new[first : first + 5],
            vectors=(vectors(new[first : first + 5]),),
            jobs=(NewJob(kind="work", key=f"{first}"),),
        )
        for first in range(0, 20, 5)
    ]
    identities = tuple(segment.segment.message_id for segment in new[::2])
    calls = [stores[number % 2].write(batch) for number, batch in enumerate(batches * 2)]
    await asyncio.gather(*calls, stores[0].forget(ForgetOrder(at=START, message_ids=identities)))
    await stores[1].forget(ForgetOrder(at=START, message_ids=identities))
    assert {row.segment.id for row in await stores[0].page()} == set(ids(new[1::2]))
    assert {vector.segment for vector in await stores[1].vectors(EMBEDDER)} == set(ids(new[1::2]))


# What a store says of a session's write that quotes what was forgotten meanwhile.


def _message_ids(new: tuple[NewSegment, ...]) -> tuple[MessageId, ...]:
    return tuple(segment.segment.message_id for segment in new)


def _cut(new: tuple[NewSegment, ...], covered: int, *, number: int = 1) -> Cut:
    return Cut(anchor=new[covered].segment.key, summary=f"marker {number}", stage="compact",
               reason=NOT_RUN, turn=number, number=number, before=number - 1,
               covers=_message_ids(new[:covered]))  # fmt: skip


def _refusals(written: WriteResult) -> tuple[bool, bool]:
    return written.session_stale, written.session_cleaned


async def write_that_quotes_the_forgotten_is_told(spaces: Spaces) -> None:
    """A state held since before its covered message was forgotten is stored bare, and told so."""
    store = await spaces.open()
    new = segments(600, words=3)
    out = LeaveOut(anchor=new[599].segment.key, part=None, stage="trim", reason=NOT_RUN, turn=1)
    edits: tuple[Edit, ...] = (_cut(new, 2), _cut(new, 590, number=2), out)
    resting = (_cut(new, 300, number=3), 1)
    state = SessionState(turn=1, edits=edits, dormant=(resting,))
    write = replace(
        session_write(new, turn=1, about=_message_ids(new[:590])), state=split_state(state)
    )
    assert _refusals(await store.write(Batch(at=START, segments=new, session=write))) == (
        False,
        False,
    )
    for turn, gone in ((2, 400), (3, 1)):  # covered by the newest alone, and by all
        await store.forget(ForgetOrder(at=LATER, segments=ids(new[gone : gone + 1])))
        late = Batch(at=LATER, session=replace(write, turn=turn, path_from=600, path=(), ids=()))
        for _ in range(2):  # as after an answer that was lost
            assert _refusals(await store.write(late)) == (False, True)
            stored = await store.session(SESSION)
            assert stored is not None
            assert (stored.turn, stored.path) == (turn, write.path)
            bare = join_state(stored.state, (), ())
            assert (bare.edits, bare.dormant) == ((out,), ())
            assert b"marker" not in stored.state
    bare_state = split_state(SessionState(turn=4, edits=(out,)))
    loaded = replace(write, turn=4, state=bare_state, about=())
    assert _refusals(await store.write(Batch(at=LATER, session=loaded))) == (False, False)


async def spooled_write_of_the_forgotten_is_told(spaces: Spaces) -> None:
    """A write that comes again after what it quotes was forgotten changes nothing, and is told."""
    store = await spaces.open()
    new = segments(4)
    write = session_write(new, turn=1, edits=(_cut(new, 2),), about=_message_ids(new[:2]))
    batch = Batch(at=START, segments=new, session=write)
    await store.write(batch)
    await store.forget(ForgetOrder(at=LATER, message_ids=_message_ids(new[:1])))
    before = await contents(store, SESSION)
    assert _refusals(await store.write(batch)) == (False, True)
    assert await contents(store, SESSION) == before
    another = session_write(new, turn=1, about=_message_ids(new[:1]), edits=(
        LeaveOut(anchor=new[3].segment.key, part=None, stage="trim", reason=NOT_RUN, turn=1),
    ))  # fmt: skip
    assert _refusals(await store.write(Batch(at=LATER, session=another))) == (True, False)
    assert await contents(store, SESSION) == before


async def state_that_nobody_can_clean_is_told(spaces: Spaces) -> None:
    """A state that quotes the forgotten and cannot be read is not stored, and told so."""
    store = await spaces.open()
    new = segments(3)
    unreadable = replace(
        session_write(new, turn=1, about=_message_ids(new[:1])), state=b"another's"
    )
    assert _refusals(await store.write(Batch(at=START, session=unreadable))) == (False, False)
    await store.forget(ForgetOrder(at=LATER, message_ids=_message_ids(new[:1])))
    late = replace(unreadable, turn=2)
    assert _refusals(await store.write(Batch(at=LATER, session=late))) == (True, True)
    assert await store.session(SESSION) is None


def _compacting(new: tuple[NewSegment, ...], *, turn: int) -> Batch:
    """What is written when the first two messages become a summary."""
    write = session_write(new, turn=turn, edits=(_cut(new, 2),), about=_message_ids(new[:2]))
    return Batch(at=LATER, session=write, compactions=(compaction(1, _message_ids(new[:2])),))


async def _refuses_both(store: Store, batch: Batch) -> None:
    for _ in range(2):
        assert _refusals(await store.write(batch)) == (False, True)
        assert await store.compactions(SESSION) == ()
        stored = await store.session(SESSION)
        assert stored is not None
        assert join_state(stored.state, (), ()).edits == ()


async def refused_compaction_of_a_place_cleans_the_session(spaces: Spaces) -> None:
    """So it is where a place was forgotten, and the words then withdrawn where else they stood."""
    store = await spaces.open()
    new = conversation(["said by all", "one", "two", "three"])
    twin = conversation(["said by all"], session="file")
    await store.write(Batch(at=START, segments=(*new, *twin)))
    done = await store.forget(ForgetOrder(at=LATER, sessions=(SESSION,), said_before=START + 0.5))
    assert len(done.segments) == 1
    stands = replace(_compacting(new, turn=1), compactions=())
    assert _refusals(await store.write(stands)) == (False, False)
    await store.withdraw(ids(twin))
    await _refuses_both(store, _compacting(new, turn=2))


# What holds for replacing stored texts: who they are stays, what they said is gone.

TOLD = "xyzzyplover"


def _saying(new: NewSegment, text: str) -> NewSegment:
    """The same segment with another text."""
    kept = replace(new.segment, text=text, foreign=None)
    return NewSegment(segment=kept, passages=passages(text))


async def _bodies(store: Store, kind: BodyKind, *, limit: int = 3) -> list[StoredBody]:
    bodies: list[StoredBody] = []
    after: str | None = None
    while page := await store.bodies(kind, after=after, limit=limit):
        assert len(page) <= limit
        assert all(body.kind == kind for body in page)
        bodies += page
        after = page[-1].id
    return bodies


async def rewritten_segments_are_found_by_their_new_words_alone(spaces: Spaces) -> None:
    """A segment keeps its id and place; its old words and vectors are gone."""
    store, model = await spaces.open(), ReferenceModel()
    old = segments(6, words=40)
    telling = tuple(
        _saying(segment, f"{segment.segment.text} the word is {TOLD}") if number % 2 else segment
        for number, segment in enumerate(old)
    )
    noise = segment("hm", session="noise", noise="filler", said_at=START + 100)
    batch = Batch(at=START, segments=(*telling, noise), vectors=(vectors(telling),))
    await store.write(batch)
    before = {row.segment.id: row.sequence for row in await store.page(limit=100)}
    quiet = tuple(
        _saying(new_segment, new_segment.segment.text.replace(TOLD, "withheld"))
        for new_segment in telling[1::2]
    )
    unknown = segment("nobody knows this one", session="elsewhere")
    done = await store.rewrite(RewriteOrder(at=LATER, segments=(*quiet, unknown)))
    assert done.segments == ids(quiet)
    assert done.vectors == sum(len(segment.passages) for segment in quiet)
    now = {segment.segment.id: segment for segment in quiet}
    new_segments = tuple(now.get(segment.segment.id, segment) for segment in telling)
    model.write(Batch(at=START, segments=(*new_segments, noise), vectors=(vectors(telling[::2]),)))
    for query in (
        CandidateQuery(words=(TOLD, "withheld"), vectors=(asked("q"),)),
        CandidateQuery(
            words=tuple(dict.fromkeys(new_segments[1].passages[0].words)), lexical_limit=99
        ),
    ):
        model.expect(query, await store.candidates(query))
    page = await store.page(limit=100)
    assert {row.segment.id: row.sequence for row in page} == before
    assert [row.segment for row in page] == [segment.segment for segment in (*new_segments, noise)]
    kept = {
        (vector.segment, vector.ordinal): vector.values for vector in await store.vectors(EMBEDDER)
    }
    assert kept == model.vectors.get(EMBEDDER, {})
    stats = await store.stats()
    assert stats.passages == sum(len(segment.passages) for segment in new_segments)
    unembedded = await store.unembedded(EMBEDDER, limit=99)
    assert {passage.segment for passage in unembedded} == set(ids(quiet)), "to be embedded again"


async def rewritten_segments_stay_known(spaces: Spaces) -> None:
    """What is sent again does not bring the old text back."""
    store = await spaces.open()
    new = segments(3)
    await store.write(Batch(at=START, segments=new))
    quiet = _saying(new[1], "withheld")
    await store.rewrite(RewriteOrder(at=LATER, segments=(quiet,)))
    again = await store.write(Batch(at=LATER, segments=new))
    assert again.known == ids(new)
    (stored_segment,) = await store.segments(ids(new[1:2]))
    assert stored_segment.segment == quiet.segment


async def every_kind_of_body_is_read_in_pages(spaces: Spaces) -> None:
    """Each body comes once, whatever the pages are; sessions are named."""
    store = await spaces.open()
    bodies = [f'{{"said": {number}}}' for number in range(8)]
    await store.write(full_batch(1))
    before = {kind: len(await _bodies(store, kind)) for kind in BODY_KINDS}
    jobs = tuple(NewJob(kind="k", key=body, payload=body.encode(), run_at=START) for body in bodies)
    await store.write(
        Batch(
            at=START,
            jobs=jobs,
            pieces=tuple(piece(body) for body in bodies),
            compactions=tuple(
                compaction(at % 4 + 10, session=f"s{at // 4}", body=text)
                for at, text in enumerate(bodies)
            ),
        )
    )
    for kind in ("pieces", "jobs", "compactions"):
        stored_bodies = await _bodies(store, kind)
        assert len(stored_bodies) == before[kind] + len(bodies)
        assert len({body.id for body in stored_bodies}) == len(stored_bodies)
        assert {body.encode() for body in bodies} <= {body.body for body in stored_bodies}
        assert stored_bodies == await _bodies(store, kind, limit=100)
    named = {body.session for body in await _bodies(store, "compactions")}
    assert {"s0", "s1"} <= named
    (state,) = await _bodies(store, "states")
    stored = await store.session(SESSION)
    assert stored is not None
    assert (state.session, state.body) == (SESSION, stored.state)


async def rewritten_bodies_are_read_back(spaces: Spaces) -> None:
    """Pieces, jobs, their reasons, compactions and states read otherwise; pieces are not exact."""
    store = await spaces.open()
    batch = full_batch(2)
    await store.write(batch)
    await store.write(
        Batch(at=START, jobs=(NewJob(kind="k", key="k", payload=b'{"a": 1}', run_at=START),))
    )
    (lease,) = await claim_all(store, now=START, kinds=("k",))
    assert await store.fail(lease, reason=f"because of {TOLD}", retry_at=None)
    for kind in BODY_KINDS:
        bodies = await _bodies(store, kind)
        assert bodies, kind
        changed = [
            NewBody(kind=kind, id=body.id, was=body.body, body=body.body + b" ") for body in bodies
        ]
        done = await store.rewrite(RewriteOrder(at=LATER, bodies=tuple(changed)))
        assert done.bodies == len(bodies)
        assert [body.body for body in await _bodies(store, kind)] == [
            new_body.body for new_body in changed
        ]
    pieces = await store.pieces([piece.hash for piece in batch.pieces])
    assert [pieces[piece.hash].body for piece in batch.pieces] == [
        piece.body + b" " for piece in batch.pieces
    ]
    assert not any(piece.exact for piece in pieces.values())
    assert [job.reason for job in await store.jobs() if job.state == "dead"] == [
        f"because of {TOLD} "
    ]


async def what_changed_meanwhile_is_left(spaces: Spaces) -> None:
    """A body is replaced only while it is what was read."""
    store = await spaces.open()
    await store.write(full_batch(3))
    before = await contents(store, SESSION)
    stale = [
        NewBody(kind=kind, id=body.id, was=body.body + b"?", body=b"{}")
        for kind in BODY_KINDS
        for body in await _bodies(store, kind)
    ]
    unknown = NewBody(kind="pieces", id="0" * 32, was=b"{}", body=b"{}")
    done = await store.rewrite(RewriteOrder(at=LATER, bodies=(*stale, unknown)))
    assert (done.bodies, done.segments, done.vectors) == (0, (), 0)
    assert await contents(store, SESSION) == before


async def forgotten_from_a_moment_on(spaces: Spaces) -> None:
    """By time: what was said then and later goes, alone, within sessions and up to a moment."""
    for order, left in (
        (ForgetOrder(at=LATER, said_after=START + 2), "abABC"),
        (ForgetOrder(at=LATER, said_after=START + 2, sessions=("one",)), "abABCD"),
        (ForgetOrder(at=LATER, said_after=START + 1, said_before=START + 2), "acABCD"),
    ):
        store = await spaces.open(left + str(len(order.sessions)))
        await store.write(
            Batch(
                at=START,
                segments=tuple(
                    segment(f"said {name}", session=session, said_at=START + at)
                    for name, session, at in (
                        ("a", "one", 0), ("b", "one", 1), ("c", "one", 2),
                        ("A", "two", 0.5), ("B", "two", 0.6), ("C", "two", 0.7), ("D", "two", 2.5),
                    )
                ),
            )
        )  # fmt: skip
        await store.forget(order)
        texts = [row.segment.text[-1] for row in await store.page(limit=100)]
        assert "".join(texts) == left
        assert {session.session for session in await store.sessions()} == {"one", "two"}
