"""A pattern takes what it matches and nothing that only holds the same letters."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store_contract import examples

from recollect.adapters.wiring import open_store
from recollect.core.formats.openclaw_files import foreign_of, split_foreign
from recollect.core.formats.stored_records import read_batch, write_batch
from recollect.core.ports import Store
from recollect.core.rules.patterns import compile_patterns
from recollect.core.upkeep.certificates import RedactionResult, headline
from recollect.core.upkeep.forget import find_targets, forget
from recollect.core.upkeep.masks import Masks
from recollect.core.upkeep.matching import ForgetSet
from recollect.core.upkeep.redact import mask_fact, redact
from recollect.core.values.batch import EXTRACT_JOB, Batch, NewJob, WriteResult, extract_key
from recollect.core.values.edit import Insert
from recollect.core.values.fact import EvidenceSpan, ExtractedTo, Fact, FactId, fact_identity
from recollect.core.values.reason import NOT_RUN
from recollect.core.values.segment import SegmentId
from recollect.core.values.upkeep import BODY_KINDS, ForgetOrder, RewriteOrder, Rewritten

AT = 1_760_011_200.0


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    store = await open_store(str(folder / "space.db"), space="alice")
    try:
        yield store
    finally:
        await store.close()


async def held(store: Store) -> str:
    pages = [await store.bodies(kind) for kind in BODY_KINDS]
    return "\n".join([one.body.decode() for page in pages for one in page])


def prompt(text: str) -> str:
    return json.dumps({"role": "system", "content": text})


async def test_a_record_that_the_pattern_does_not_match_stays(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        quoting = Insert(
            anchor=None, placement="head", text="the channel of Anna", stage="inject",
            reason=NOT_RUN, turn=1,
        )  # fmt: skip
        said = examples.conversation(["The tide is low."])
        pieces = ("planning the channel", "Ann", "Ann leads the crew")
        batch = Batch(
            at=AT,
            segments=said,
            pieces=tuple(examples.piece(prompt(text), kind="system") for text in pieces),
            jobs=(
                NewJob(kind="later", key="a", payload=b'{"text": "annual plan"}', run_at=2e9),
                NewJob(kind="later", key="b", payload=b'{"text": "ask Ann"}', run_at=2e9),
            ),
            session=examples.session_write(said, turn=1, edits=(quoting,)),
        )
        await store.write(batch)
        order = ForgetOrder(at=AT, pattern=r"\bAnn\b")
        meant = await find_targets(store, [], order)
        assert (meant.messages, meant.records, meant.nothing) == (0, 3, False)
        certificate = await forget(store, [], order, now=AT)
        left = await held(store)
        for stays in ("planning the channel", "annual plan", "the channel of Anna"):
            assert stays in left
        assert "Ann " not in left
        assert 'Ann"' not in left
        assert "Ann leads" not in left
        assert certificate.counts["ledger pieces"] == 2
        assert certificate.counts["jobs"] == 1
        assert certificate.counts["session states changed"] == 0
        assert (await find_targets(store, [], order)).nothing
        await store.write(replace(batch, session=None))
        assert "Ann leads" not in await held(store), "it does not come back"


async def test_facts_that_rest_on_what_goes_are_counted_before(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        new = examples.conversation(["Nightfall begins.", "The tide is low."])
        first, second = examples.ids(new)
        twice = examples.conversation(["Hello.", "The tide is low."], session="other")
        facts = (
            examples.fact("rests", sources=[first]),
            examples.fact("both", sources=[first, second]),
            examples.fact("joint", sources=[first, second], joint=True),
            examples.fact("tide", sources=[second]),
        )
        await store.write(Batch(at=AT, segments=(*new, *twice), facts=facts))
        for order, expected in (
            (ForgetOrder(at=AT, matching="Nightfall"), {"rests", "joint"}),
            (ForgetOrder(at=AT, segments=(second,)), {"joint", "tide"}),
            (ForgetOrder(at=AT, sessions=(new[0].segment.session,)), {"rests", "joint"}),
        ):
            meant = await find_targets(store, [], order)
            assert {str(fact.id) for fact in meant.facts} == expected, order
        order = ForgetOrder(at=AT, sessions=(new[0].segment.session,))
        assert (await find_targets(store, [], order)).messages == 2
        assert (await forget(store, [], order, now=AT)).counts["facts"] == 2
        assert {str(fact.id) for fact in await store.facts()} == {"both", "tide"}, "said elsewhere"


def test_a_forgotten_session_leaves_no_reading_and_no_name_in_the_spool() -> None:
    jobs = [
        NewJob(
            kind=EXTRACT_JOB,
            key=extract_key(name, left=left),
            payload=json.dumps({"session": name}).encode(),
        )
        for name in ("monday", "tuesday")
        for left in (False, True)
    ]
    fact = replace(examples.fact("f"), session="monday")
    batch = Batch(
        at=AT,
        jobs=tuple(jobs),
        facts=(fact,),
        extracted=(ExtractedTo(session="monday", sequence=3),),
    )
    record = ForgetSet(order=ForgetOrder(at=AT, sessions=("monday",))).remove(write_batch(batch))
    assert record is not None
    assert b"monday" not in record
    left = read_batch(record)
    assert [job.key for job in left.jobs] == [job.key for job in jobs[2:]]
    assert [one.session for one in left.facts] == [None]
    by_time = ForgetSet(order=ForgetOrder(at=AT, sessions=("monday",), said_before=1.0))
    assert by_time.remove(write_batch(batch)) == write_batch(batch)


def test_spooled_facts_lose_what_they_rest_on_by_the_stores_own_rule() -> None:
    new = examples.conversation(["The crane is new.", "The tide is low."])
    gone, stays = examples.ids(new)
    spans = tuple(EvidenceSpan(segment=SegmentId(one), start=0, end=3) for one in (gone, stays))
    only_span = examples.fact("span", evidence=spans[:1])
    both = examples.fact("both", sources=[stays], evidence=spans)
    batch = Batch(at=AT, segments=new, facts=(only_span, both))
    order = ForgetOrder(at=AT, segments=(gone,))
    record = ForgetSet(order=order, segments={gone}).remove(write_batch(batch))
    assert record is not None
    assert [(one.id, one.evidence) for one in read_batch(record).facts] == [("both", spans[1:])]


async def test_whoever_asks_for_a_fact_that_rested_on_it_is_told(tmp_path: Path) -> None:
    store = await open_store(str(tmp_path / "m.db"), space="default")
    new = examples.conversation(["The crane is red."])
    fact = examples.fact("red", sources=examples.ids(new), subject="Nightfall crane")
    await store.write(Batch(at=1.0, segments=new, facts=(fact,)))
    await forget(store, [], ForgetOrder(at=2.0, segments=examples.ids(new)), now=2.0)
    mark = fact_identity(FactId("red"))
    assert await store.tombstoned([mark]) == {mark}
    await store.close()


async def test_a_text_is_looked_for_in_what_a_fact_is_about(tmp_path: Path) -> None:
    store = await open_store(str(tmp_path / "m.db"), space="default")
    fact = examples.fact("a", content="it is red", subject="nightfall crane")
    await store.write(Batch(at=1.0, facts=(fact,)))
    await forget(store, [], ForgetOrder(at=2.0, matching="Nightfall"), now=2.0)
    assert await store.facts(superseded=True) == ()
    await store.close()


TOKEN = "ghp_" + "Zq7LmT2xVb9KsR4wYd1NcF6hJp3QaE8uGi5o"
SAID = f"Use the token {TOKEN} for the crane."
STAFF = Masks(patterns=compile_patterns([r"ACME-\d+"]))


async def redacted(
    store: Store, masks: Masks | None = None, *, apply: bool = True
) -> RedactionResult:
    return await redact(store, [], masks or Masks(), now=2.0, apply=apply)


def resting() -> Batch:
    new = examples.conversation([SAID, "The tide is low."])
    span = EvidenceSpan(segment=new[0].segment.id, start=SAID.index("for"), end=len(SAID))
    fact = examples.fact("f", content="a crane", sources=(span.segment,), evidence=(span,))
    return Batch(at=1.0, segments=new, facts=(fact,), vectors=(examples.vectors(new),))


async def spanned(store: Store) -> str:
    (fact,) = await store.facts()
    (span,) = fact.evidence
    (held,) = await store.segments([span.segment])
    return held.segment.text[span.start : span.end]


class KilledError(Exception):
    """Stands for a process that ends."""


async def test_cut_off_anywhere_span_is_of_its_text_and_next_run_ends_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.write(resting())
        whole = store.rewrite
        done = 0

        async def rewrite_once(order: RewriteOrder) -> Rewritten:
            nonlocal done
            done += 1
            if done > 1:
                raise KilledError
            return await whole(order)

        async def killed(batch: Batch) -> WriteResult:
            raise KilledError

        write = store.write
        store.rewrite = rewrite_once  # type: ignore[method-assign]
        store.write = killed  # type: ignore[method-assign]
        with pytest.raises(KilledError):
            await redacted(store)
        assert await spanned(store) == "for the crane.", "with the segment, or not at all"
        store.rewrite, store.write = whole, write  # type: ignore[method-assign]
        await redacted(store)
        assert await spanned(store) == "for the crane."
        assert (await redacted(store)).in_clear == 0


async def test_a_fact_written_meanwhile_is_not_moved_to_a_text_it_is_not_of(tmp_path: Path) -> None:
    """Who read the message before writes on what it read; redacting looks again."""
    async with opened(tmp_path) as store:
        batch = resting()
        await store.write(replace(batch, facts=()))
        whole, late = store.rewrite, [batch.facts]

        async def rewrite_late(order: RewriteOrder) -> Rewritten:
            if late:
                await store.write(Batch(at=1.5, facts=late.pop()))
            return await whole(order)

        store.rewrite = rewrite_late  # type: ignore[method-assign]
        assert (await redacted(store)).unmasked == 0
        assert await spanned(store) == "for the crane."


async def test_names_that_match_are_counted_and_nobody_is_told_all_is_clean(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        (new,) = examples.conversation(["The tide is low."], session="about ACME-7")
        new = replace(new, segment=replace(new.segment, origin="ACME-8.jsonl:1"))
        job = NewJob(kind="later", key="ACME-9", run_at=2e9)
        await store.write(Batch(at=1.0, segments=(new,), jobs=(job,)))
        done = await redacted(store, STAFF)
        assert (done.secrets, done.unmasked, done.in_clear) == (0, 3, 3)
        assert "No secret stands" not in headline(done)
        told = "\n".join(done.cannot)
        for what in ("names of sessions", "imported from", "keys of jobs"):
            assert f"1 {what}" in told.replace("places that messages were ", "")
        assert "ACME" not in told


async def test_copies_that_lost_a_sign_or_two_are_masked_in_their_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        texts = [f"it was {TOKEN[2:]} once", SAID, f"or {TOKEN[:-1]}!", "The tide is low."]
        await store.write(Batch(at=1.0, segments=examples.conversation(texts)))
        seen = await redacted(store, apply=False)
        done = await redacted(store)
        assert seen.kinds == done.kinds == {"messages": {"github-token": 1, "cut-secret": 2}}
        assert done.changed == {"messages": 3}
        held = " ".join([one.segment.text for one in await store.page()])
        assert TOKEN[2:-2] not in held
        assert held.startswith("it was [REDACTED:cut-secret] once")
        assert "or [REDACTED:cut-secret]!" in held
        assert (await redacted(store)).in_clear == 0


def imported(value: object) -> Fact:
    line = json.dumps({"id": "f", "extra": value, "more": ["b", {"kind": "x"}, "y"]})
    return replace(examples.fact("f"), foreign=foreign_of(7, line))


def test_the_line_a_fact_was_imported_as_is_masked_as_json() -> None:
    masks = Masks(patterns=compile_patterns([r"Grüner \w+", "key .*"]))
    fact = imported(["der Grüner Veltliner", "the key is here", "stays"])
    assert "u00fc" in (fact.foreign or "")
    done = mask_fact(fact, masks, {}, Counter())
    number, line = split_foreign(done.foreign or "")
    assert number == "7\t"
    held = json.loads(line)
    assert held["extra"] == [
        "der [REDACTED:own-pattern-1]", "the [REDACTED:own-pattern-2]", "stays",
    ]  # fmt: skip
    assert held["more"] == ["b", {"kind": "x"}, "y"]
