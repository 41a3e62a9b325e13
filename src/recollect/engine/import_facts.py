"""The seeds' `knowledge.jsonl` into the archive.

A fact keeps its file's id and line; one that is there as it is stays as it is, one that was
changed here since is not put back, and one that was forgotten stays out. What a line of our own
says beyond the seeds' keys is taken over, within the bounds that `with_own_keys` sets: a file never
makes anything more trusted than what a model says, unless it says that a person wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from recollect.engine.import_path import ImportCounts, ImportRules
from recollect.engine.seed_lines import SeedCounts, chunks, line_again, masked_object
from recollect.formats.knowledge_jsonl import (
    FIELDS,
    KnowledgeLine,
    foreign_of,
    read_knowledge_lines,
)
from recollect.formats.knowledge_own import with_own_keys
from recollect.ports import Store
from recollect.rules.clean_text import clean_text
from recollect.search.tokenize import tokenize
from recollect.values.batch import Batch
from recollect.values.fact import Fact, FactId, fact_identity


async def import_facts(store: Store, lines: Iterable[bytes], *, rules: ImportRules) -> SeedCounts:
    """Write the lines of a `knowledge.jsonl`; a fact that is there as it is stays as it is."""
    passed_over: list[str] = []
    counts = SeedCounts()
    for chunk in chunks(read_knowledge_lines(lines, passed_over)):
        made = {fact.id: (fact, altered) for fact, altered in _facts(chunk, rules)}
        known = {fact.id: fact for fact in await store.facts(list(made), superseded=True)}
        forgotten = await store.tombstoned(map(fact_identity, made))
        fresh = [
            (fact, altered)
            for fact, altered in made.values()
            if fact_identity(fact.id) not in forgotten
            and (fact.id not in known or known[fact.id].foreign not in (fact.foreign, None))
        ]
        out = sum(fact_identity(id_) in forgotten for id_ in made)
        if fresh:
            await store.write(Batch(at=rules.now, facts=tuple(fact for fact, _ in fresh)))
        counts = counts.plus(
            SeedCounts(
                messages=ImportCounts(
                    read=len(chunk),
                    stored=len(fresh),
                    known=len(chunk) - len(fresh) - out,
                    forgotten=out,
                ),
                altered=sum(altered for _, altered in fresh),
            )
        )
    return replace(counts, passed_over=tuple(passed_over))


def _facts(chunk: Sequence[KnowledgeLine], rules: ImportRules) -> Iterator[tuple[Fact, bool]]:
    for line in chunk:
        value, altered = masked_object(line.value, FIELDS, rules.redaction)
        content, context = value.get("content"), value.get("context")
        text = clean_text(content if isinstance(content, str) else "")
        bare = Fact(
            id=FactId(clean_text(line.id)),
            type=line.type,
            content=text,
            context=clean_text(context) if isinstance(context, str) else "",
            at=rules.now if line.at is None else line.at,
            superseded_by=FactId(clean_text(line.superseded_by))
            if line.superseded_by is not None
            else None,
            words=tuple(tokenize(text)),
            foreign=foreign_of(line.number, line_again(value, line.line) if altered else line.line),
        )
        yield _cleaned(with_own_keys(bare, value)), altered


def _cleaned(fact: Fact) -> Fact:
    """The fact with its free texts as every text is stored."""
    return replace(
        fact,
        subject=clean_text(fact.subject),
        attribute=clean_text(fact.attribute),
        session=None if fact.session is None else clean_text(fact.session),
    )
