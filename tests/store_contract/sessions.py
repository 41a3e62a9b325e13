"""What holds for sessions: the path grows, branches and is never set back by a late write.

Any name can be kept, and a forgotten one is nowhere. A search of one session also sees the memory
files beside it, which are sessions of their own whose names begin with `file:`.
"""

import json
from dataclasses import replace

from tests.store_contract.examples import (
    SESSION,
    SOON,
    START,
    asked,
    fact,
    fact_vectors,
    ids,
    segment,
    segments,
    session_write,
    vector,
    vectors,
    worded,
)
from tests.store_contract.harness import Spaces, claim_all
from tests.store_contract.model import ReferenceModel, ask

from recollect.core.formats.stored_records import join_state, split_state
from recollect.core.ports import Store
from recollect.core.rules.identity import ROOT, chain
from recollect.core.values.batch import (
    EXTRACT_JOB,
    Batch,
    NewJob,
    SessionWrite,
    TurnRecord,
    extract_key,
)
from recollect.core.values.edit import Cut, Insert, LeaveOut, Shorten
from recollect.core.values.history import SessionState, TokenCalibration
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.recall import CandidateQuery, FactQuery
from recollect.core.values.segment import NewSegment
from recollect.core.values.upkeep import ForgetOrder


async def late_session_write_is_left_out(spaces: Spaces) -> None:
    """A session write of no later turn than the stored one changes nothing and is told."""
    store = await spaces.open()
    new = segments(6)
    await store.write(Batch(at=START, session=session_write(new, turn=7)))
    before = await store.session(SESSION)
    late = await store.write(Batch(at=START + 1, session=session_write(new[:1], turn=6)))
    assert late.session_stale
    assert await store.session(SESSION) == before
    again = await store.write(Batch(at=START, session=session_write(new, turn=7)))
    assert not again.session_stale
    other = replace(session_write(new[:2], turn=7), state=split_state(SessionState(turn=700)))
    written = await store.write(Batch(at=START, session=other))
    assert written.session_stale, "another process took this turn first"
    assert await store.session(SESSION) == before
    newer = await store.write(Batch(at=START, session=session_write(new[:2], turn=8)))
    assert not newer.session_stale
    stored = await store.session(SESSION)
    assert stored is not None
    assert (stored.turn, len(stored.path)) == (8, 2)


async def stale_session_takes_its_turns_along(spaces: Spaces) -> None:
    """Turns of a session whose write is stale are not recorded; segments and other turns are."""
    store = await spaces.open()
    new = segments(6)

    def turn(number: int, session: str = SESSION) -> TurnRecord:
        return TurnRecord(session=session, number=number, at=START, format="pi")

    first = Batch(at=START, session=session_write(new[:3], turn=7), turns=(turn(7),))
    await store.write(first)
    for stale in (
        session_write(new[:1], turn=6),
        replace(session_write(new[:2], turn=7), state=split_state(SessionState(turn=700))),
        session_write(new[5:], turn=8, path_from=5),
    ):
        batch = Batch(
            at=START, segments=new, session=stale, turns=(turn(6), turn(8), turn(8, "other"))
        )
        assert (await store.write(batch)).session_stale
        assert await store.turns(SESSION) == (7,)
        assert await store.turns("other") == (8,)
        assert len(await store.page()) == 6
    assert not (await store.write(first)).session_stale
    grown = session_write(new[3:], turn=8, path_from=3)
    await store.write(Batch(at=START, session=grown, turns=(turn(8),)))
    assert await store.turns(SESSION) == (7, 8)


async def path_has_no_gap(spaces: Spaces) -> None:
    """A write that begins beyond the stored path is left out and told: a path is never wrong."""
    store = await spaces.open()
    new = segments(9)
    for stored in (0, 3):
        if stored:
            await store.write(Batch(at=START, session=session_write(new[:stored], turn=1)))
        before = await store.session(SESSION)
        beyond = session_write(new[5:], turn=2, path_from=5)
        written = await store.write(Batch(at=START, session=beyond))
        assert written.session_stale
        assert await store.session(SESSION) == before
    whole = await store.write(Batch(at=START, session=session_write(new, turn=2)))
    assert not whole.session_stale


async def long_path_comes_back(spaces: Spaces) -> None:
    """A path of 20,000 messages is kept, grows and branches like a short one."""
    store = await spaces.open()
    keys: list[EntryKey] = []
    for number in range(20_000):
        keys.append(chain(keys[-1] if keys else ROOT, MessageId(f"{number:032x}")))
    identities = tuple(MessageId(f"{number:032x}") for number in range(20_000))
    whole = SessionWrite(
        session=SESSION,
        turn=1,
        state=split_state(SessionState(turn=1)),
        path=tuple(keys[:19_999]),
        ids=identities[:19_999],
    )
    await store.write(Batch(at=START, session=whole))
    await store.write(
        Batch(
            at=START,
            session=replace(
                whole, turn=2, path_from=19_999, path=tuple(keys[-1:]), ids=identities[-1:]
            ),
        )
    )
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.path == tuple(keys)
    assert stored.ids == identities
    await store.write(
        Batch(at=START, session=replace(whole, turn=3, path_from=10, path=(), ids=()))
    )
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.path == tuple(keys[:10])


def _cut(anchor: EntryKey, covers: tuple[MessageId, ...]) -> Cut:
    return Cut(anchor=anchor, summary="s", stage="compact", reason=NOT_RUN, turn=1, covers=covers)


async def session_state_comes_back(spaces: Spaces) -> None:
    """A state that was taken apart for the store is the same state when put together again."""
    store = await spaces.open()
    new = segments(5)
    keys = tuple(segment.segment.key for segment in new)
    identities = tuple(segment.segment.message_id for segment in new)
    state = SessionState(
        turn=3,
        path=keys,
        ids=identities,
        aliases={keys[0]: keys[1]},
        edits=(
            LeaveOut(anchor=keys[0], part=None, stage="trim", reason=NOT_RUN, turn=1),
            Shorten(anchor=keys[1], part=0, text="… 🙂", stage="prune", reason=NOT_RUN, turn=2),
            Insert(
                anchor=None, placement="head", text="重", stage="inject", reason=NOT_RUN, turn=2
            ),
        ),
        dormant=(
            (_cut(keys[2], identities[:2]), 2),
            (_cut(keys[4], identities), 1),
            (_cut(keys[4], (*identities[:2], MessageId("of another branch"))), 1),
        ),
        calibration=TokenCalibration(),
        sent_at=START + 0.125,
        sent_estimate_tokens=12,
        sent_model="m",
    )
    write = replace(session_write(new, turn=3), state=split_state(state))
    await store.write(Batch(at=START, session=write))
    store = await spaces.reopen(store)
    stored = await store.session(SESSION)
    assert stored is not None
    assert stored.state == write.state
    assert join_state(stored.state, stored.path, stored.ids) == state


async def sessions_are_listed(spaces: Spaces) -> None:
    """Sessions that have segments are listed, oldest first, with their counts and times."""
    store = await spaces.open()
    assert await store.sessions() == ()
    for place, name in enumerate(("b", "a", "c")):
        new = segments(place + 1, session=name, said_at=START + place * 1_000)
        await store.write(Batch(at=START, segments=new))
    await store.write(Batch(at=START, session=session_write((), turn=1, session="only a state")))
    listed = await store.sessions()
    assert [(session.session, session.segments) for session in listed] == [
        ("b", 1),
        ("a", 2),
        ("c", 3),
    ]
    assert [(session.first_said_at, session.last_said_at) for session in listed] == [
        (START, START),
        (START + 1_000, START + 1_001),
        (START + 2_000, START + 2_002),
    ]


# What holds for the name of a session: any name can be kept, and a forgotten one is nowhere.

ODD_NAMES = ("a\ud800b", "a\x00b", "", "talk 世界 '\\", "x" * 3_000)


def _reading(session: str, *, left: bool = False) -> NewJob:
    payload = json.dumps({"session": session, "left": left}).encode()
    return NewJob(
        kind=EXTRACT_JOB, key=extract_key(session, left=left), payload=payload, run_at=START
    )


async def jobs_of_a_forgotten_session_go(spaces: Spaces) -> None:
    """Waiting, leased and dead jobs that name it go with a session, or with its last message by
    time; one that was taken has no effect any more. Those of others stay."""
    for place, name in enumerate(("private", *ODD_NAMES[:2])):
        for by_time in (False, True):
            store = await spaces.open(f"{place}-{by_time}")
            new_segments = tuple(segment(f"hello {text}", session=text) for text in (name, "other"))
            later = segment("later", session="other", said_at=SOON)
            mine = (_reading(name), _reading(name, left=True))
            rest = (_reading("other"),)
            await store.write(Batch(at=START, segments=(*new_segments, later), jobs=mine))
            taken = await claim_all(store, now=START, kinds=(EXTRACT_JOB,))
            assert await store.fail(taken[0], reason="no", retry_at=None)
            await store.write(Batch(at=START, jobs=(*mine, *rest)))
            order = ForgetOrder(at=SOON, sessions=(name,))
            if by_time:
                order = ForgetOrder(at=SOON, said_before=START + 1)
            done = await store.forget(order)
            assert done.jobs == 4
            left = await store.jobs()
            assert sorted(job.key for job in left) == sorted(job.key for job in rest)
            effect = Batch(at=SOON, jobs=(_reading(name),), facts=(fact("late"),))
            for lease in taken:
                assert not await store.complete(lease, effect)
                assert not await store.fail(lease, reason="no", retry_at=SOON)
            assert await store.jobs() == left
            await spaces.finish(store)


async def no_fact_names_a_forgotten_session(spaces: Spaces) -> None:
    """Facts that outlive a session belong to the whole space, and are found as before; those of
    others, and of a session that lost some messages, do not change."""
    store = await spaces.open()
    here = segment("the port is 8080", session="gone")
    there = segment("the port is 8080", session="stays")
    more = segment("and the host is ours", session="stays", said_at=SOON)
    facts = (
        fact("twin", sources=ids((here,)), session="gone"),
        fact("by hand", at=START + 1, session="gone", made_by="user"),
        fact("closed", at=START + 2, session="gone", valid_to=SOON),
        fact("other", at=START + 3, session="stays"),
        fact("of all", at=START + 4),
    )
    vectors = (fact_vectors(facts),)
    batch = Batch(at=START, segments=(here, there, more), facts=facts, fact_vectors=vectors)
    await store.write(batch)
    revision = await store.facts_revision()
    await store.forget(ForgetOrder(at=SOON, sessions=("gone",)))
    expected = [
        replace(facts[0], sources=ids((there,)), session=None),
        *(replace(fact, session=None) for fact in facts[1:3]),
        *facts[3:],
    ]
    assert list(await store.facts(superseded=True)) == expected
    assert await store.facts_revision() > revision
    candidates = await store.fact_candidates(FactQuery(words=("fact",), session="elsewhere"))
    assert {candidate.fact.id for candidate in candidates.facts} == {"twin", "by hand", "of all"}
    await store.forget(ForgetOrder(at=SOON, said_before=SOON))
    assert [fact.session for fact in await store.facts([facts[3].id])] == ["stays"]
    await store.forget(ForgetOrder(at=SOON, said_after=SOON))
    assert [fact.session for fact in await store.facts([facts[3].id])] == [None]


# Searching one session and the memory files beside it

_FILES = (
    "file:", "file:MEMORY.md", "file:memory/2026-11-15.md", "file:~/notes/a b.md", "file:%_*?[",
    "file::", "file:;", "file:'\"\\", "file:\t\n", "file:\x01", "file:\x1a", "file:été",
    "file:数据.md", "file:🙂", "file:\uffff", "file:\U0010ffff",
)  # fmt: skip
_NO_FILES = (
    "file", "files", "file;", "file9", "file\x1a", "file\x1a003a", "fil", "fi", "", "File:a",
    "FILE:a", " file:a", "a file:a", "file :a", "profile:a", "file\uff1aa", "\u0444ile:a", "ﬁle:a",
)  # fmt: skip


async def _write(store: Store, model: ReferenceModel, *new: NewSegment) -> None:
    batch = Batch(at=START, segments=new, vectors=(vectors(new, embedder="e"),))
    model.write(batch)
    await store.write(batch)


def _asking(like: NewSegment) -> CandidateQuery:
    near = asked("q", embedder="e", like=vector("e" + like.segment.text))
    return CandidateQuery(words=("target",), vectors=(near,), lexical_limit=200, vector_limit=200)


def _ways(query: CandidateQuery) -> tuple[CandidateQuery, ...]:
    """By words and vectors, and by either alone."""
    return query, replace(query, words=()), replace(query, vectors=())


async def files_are_searched_beside_a_session(spaces: Spaces) -> None:
    """With its files a session is searched together with every session whose name begins with
    `file:`, whatever follows, and with no other; without a session that changes nothing."""
    store = await spaces.open()
    model = ReferenceModel()
    names = ("talk", "other", *_FILES, *_NO_FILES)
    new = [
        worded(["target"] * (number % 3 + 1) + ["filler"] * (number % 5), number=number,
               session=name, said_at=START + number)
        for number, name in enumerate(names)
    ]  # fmt: skip
    await _write(store, model, *new)
    for session in ("talk", "unheard of", "file", "files", "file:MEMORY.md", "file:unheard of"):
        for query in _ways(replace(_asking(new[0]), session=session)):
            alone = await ask(store, model, query)
            assert {candidate.session for candidate in alone.passages} <= {session}
            candidates = await ask(store, model, replace(query, with_files=True))
            expected = {*_FILES, session}.intersection(names)
            assert {candidate.session for candidate in candidates.passages} == expected
    for query in _ways(_asking(new[0])):
        everything = await ask(store, model, replace(query, with_files=True))
        assert {candidate.session for candidate in everything.passages} == set(names)


async def files_are_searched_as_they_are_now(spaces: Spaces) -> None:
    """What was written, withdrawn, indexed again or forgotten a moment ago is found, or not, by
    every store that is open."""
    store = await spaces.open()
    other = await spaces.open()
    model = ReferenceModel()
    talk = segments(4, first=10, session="talk", words=6, said_at=START + 500)
    notes = [
        worded(["target", f"note{number}"], number=number, session=f"file:{number % 3}.md",
               said_at=START + number)
        for number in range(9)
    ]  # fmt: skip
    base = replace(_asking(notes[4]), session="talk", with_files=True)

    async def hold(*, found: int) -> None:
        for one in (store, other):
            for query in _ways(base):
                await ask(one, model, query)
            by_words = await ask(one, model, replace(base, vectors=()))
            assert len(by_words.passages) == found

    await _write(store, model, *talk)
    await hold(found=0)
    await _write(other, model, *notes[:3])
    await hold(found=3)
    await _write(store, model, *notes[3:])
    await hold(found=9)
    gone = ids((notes[0], notes[5]))
    assert await store.withdraw(gone) == model.withdraw(gone) == 2
    await hold(found=7)
    await _write(other, model, notes[5])
    await hold(found=8)
    anew = replace(notes[6].passages[0], words=("target", "target", "anew"))
    await store.replace_passages({notes[6].segment.id: (anew,)})
    model.segments[notes[6].segment.id] = replace(notes[6], passages=(anew,))
    await hold(found=8)
    left = tuple(
        segment_id
        for segment_id, new in model.segments.items()
        if new.segment.session == "file:1.md"
    )
    model.forget(left, by_place=True)
    done = await other.forget(ForgetOrder(at=START, sessions=("file:1.md",)))
    assert sorted(done.segments) == sorted(left)
    await hold(found=8 - len(left))
