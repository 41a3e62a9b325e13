"""OpenClaw's `knowledge.jsonl` into the archive.

A fact keeps its file's id and line; one that is there as it is stays as it is, one that was
changed here since (closed, pinned, masked) is not put back, and one that was forgotten stays out.
What a line of our own says beyond OpenClaw's keys is taken over, within the bounds that
`with_own_keys` sets: a file never makes anything more trusted than what a model says, unless a
person restores an export of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from recollect.engine.import_openclaw import FileCounts, chunks, line_again, masked_object
from recollect.engine.import_path import ImportCounts, ImportRules
from recollect.formats.openclaw_files import (
    KNOWLEDGE_FIELDS,
    KnowledgeLine,
    foreign_of,
    line_of,
    own_keys,
    read_knowledge_lines,
    with_own_keys,
)
from recollect.ports import Store
from recollect.rules.secret_values import MASK_OPENING
from recollect.rules.text import clean_text
from recollect.search.tokenize import tokenize
from recollect.values.batch import Batch
from recollect.values.fact import Fact, FactId, fact_identity


async def import_facts(
    store: Store, lines: Iterable[bytes], *, rules: ImportRules, restore: bool = False
) -> FileCounts:
    """Write the lines of a `knowledge.jsonl`; a fact that is there as it is stays as it is.

    `restore`: the file is an export of one's own, and what it says of trust, maker and pins holds.
    """
    passed_over: list[str] = []
    counts = FileCounts()
    for chunk in chunks(read_knowledge_lines(lines, passed_over)):
        made = {one[0].id: one for one in (_fact(line, rules, restored=restore) for line in chunk)}
        known = {fact.id: fact for fact in await store.facts(list(made), superseded=True)}
        forgotten = await store.tombstoned(map(fact_identity, made))
        fresh = [
            (fact, altered)
            for fact, altered in made.values()
            if fact_identity(fact.id) not in forgotten
            and _comes_in(fact, known.get(fact.id), rules, restore=restore)
        ]
        out = sum(fact_identity(id_) in forgotten for id_ in made)
        if fresh:
            await store.write(Batch(at=rules.now, facts=tuple(fact for fact, _ in fresh)))
        counts = counts.plus(
            FileCounts(
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


def _comes_in(fact: Fact, stored: Fact | None, rules: ImportRules, *, restore: bool) -> bool:
    """Whether a line is written: it is new, or it says something else than when it came first and
    nothing was done here to the fact since."""
    if stored is None:
        return True
    if stored.foreign is None or fact.foreign is None:
        return False
    readings = (False, True) if restore else (False,)
    if not any(_as_it_came(stored, rules, restored=reading) for reading in readings):
        return False
    before, now = line_of(stored.foreign), line_of(fact.foreign)
    if before == now:
        return restore and own_keys(stored) != own_keys(fact)
    return before.count(MASK_OPENING) <= now.count(MASK_OPENING)  # else it was masked here


def _as_it_came(stored: Fact, rules: ImportRules, *, restored: bool) -> bool:
    """Whether a stored fact is what its line makes of it, trusted or not."""
    line = line_of(stored.foreign or "").encode("utf-8", "surrogatepass")
    read = next(read_knowledge_lines([line], []), None)
    if read is None:
        return False
    came, _ = _fact(read, rules, restored=restored)
    return _told(came) == _told(stored)


def _told(fact: Fact) -> tuple[object, ...]:
    return fact.type, fact.content, fact.context, fact.superseded_by, own_keys(fact)


def _fact(line: KnowledgeLine, rules: ImportRules, *, restored: bool) -> tuple[Fact, bool]:
    """A line as a fact, and whether something in it had to be masked."""
    value, altered = masked_object(line.value, KNOWLEDGE_FIELDS, rules.redaction)
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
    return _cleaned(with_own_keys(bare, value, restored=restored)), altered


def _cleaned(fact: Fact) -> Fact:
    """The fact with its free texts as every text is stored."""
    return replace(
        fact,
        subject=clean_text(fact.subject),
        attribute=clean_text(fact.attribute),
        session=None if fact.session is None else clean_text(fact.session),
    )
