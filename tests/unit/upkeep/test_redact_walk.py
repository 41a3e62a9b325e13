"""Redacting a store: spans stay true when it is cut off, and nothing that is left goes untold."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store_contract import examples

from recollect.adapters.wiring import open_store
from recollect.core.formats.openclaw_files import foreign_of, split_foreign
from recollect.core.ports import Store
from recollect.core.upkeep.certificates import RedactionResult, headline
from recollect.core.upkeep.masks import Masks, own_patterns
from recollect.core.upkeep.redact import mask_fact, redact
from recollect.core.values.batch import Batch, NewJob, WriteResult
from recollect.core.values.fact import EvidenceSpan, Fact
from recollect.core.values.upkeep import RewriteOrder, Rewritten

TOKEN = "ghp_" + "Zq7LmT2xVb9KsR4wYd1NcF6hJp3QaE8uGi5o"
SAID = f"Use the token {TOKEN} for the crane."
STAFF = Masks(patterns=own_patterns([r"ACME-\d+"]))


def run(folder: Path, scenario: Callable[[Store], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = await open_store(str(folder / "space.db"), space="alice")
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(whole())


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


def test_cut_off_anywhere_a_span_is_of_its_text_and_the_next_run_ends_it(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
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

    run(tmp_path, scenario)


def test_a_fact_written_meanwhile_is_not_moved_to_a_text_it_is_not_of(tmp_path: Path) -> None:
    """Who read the message before writes on what it read; redacting looks again."""

    async def scenario(store: Store) -> None:
        batch = resting()
        await store.write(replace(batch, facts=()))
        whole, late = store.rewrite, [batch.facts]

        async def rewrite_late(order: RewriteOrder) -> Rewritten:
            if late:
                await store.write(Batch(at=1.5, facts=late.pop()))
            return await whole(order)

        store.rewrite = rewrite_late  # type: ignore[method-assign]
        assert (await redacted(store)).left == 0
        assert await spanned(store) == "for the crane."

    run(tmp_path, scenario)


def test_names_that_match_are_counted_and_nobody_is_told_all_is_clean(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        (new,) = examples.conversation(["The tide is low."], session="about ACME-7")
        new = replace(new, segment=replace(new.segment, origin="ACME-8.jsonl:1"))
        job = NewJob(kind="later", key="ACME-9", run_at=2e9)
        await store.write(Batch(at=1.0, segments=(new,), jobs=(job,)))
        done = await redacted(store, STAFF)
        assert (done.secrets, done.left, done.in_clear) == (0, 3, 3)
        assert "No secret stands" not in headline(done)
        told = "\n".join(done.cannot)
        for what in ("names of sessions", "imported from", "keys of jobs"):
            assert f"1 {what}" in told.replace("places that messages were ", "")
        assert "ACME" not in told

    run(tmp_path, scenario)


def test_copies_that_lost_a_sign_or_two_are_masked_in_their_session(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
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

    run(tmp_path, scenario)


def imported(value: object) -> Fact:
    line = json.dumps({"id": "f", "extra": value, "more": ["b", {"kind": "x"}, "y"]})
    return replace(examples.fact("f"), foreign=foreign_of(7, line))


def test_the_line_a_fact_was_imported_as_is_masked_as_json() -> None:
    masks = Masks(patterns=own_patterns([r"Grüner \w+", "key .*"]))
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
