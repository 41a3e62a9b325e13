"""A Markdown folder of facts held against what is known: what people changed in it, and doing it.

Owns what a changed, a new and a missing line mean. Must never remove a fact: a line that is gone
is told, and forgetting it is another order. Always holds: a folder that nobody changed asks for
nothing, whatever was done to the facts since; a line that stands as it was written is no edit, and
makes nothing more trusted; what was taken in once asks for nothing the second time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from recollect.config.settings import Redaction
from recollect.engine.facts.book import FactBook, shown_history
from recollect.errors import RecollectError
from recollect.facts.results import FactFilter, FactWritten
from recollect.facts.written import stored_words
from recollect.formats.memory_folder import (
    MAIN_FILES,
    FolderLine,
    FolderRead,
    line_mark,
    without_subject,
)
from recollect.ports import Store
from recollect.values.fact import Fact, FactId, FactType, fact_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEdit:
    """A line whose words, or heading, people changed."""

    line: FolderLine
    fact: Fact
    type: FactType | None = None
    """The type of its new heading; None where it stayed."""
    reworded: bool = True
    """False where only the heading is another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderPlan:
    """What a folder asks for."""

    edits: tuple[FolderEdit, ...] = ()
    additions: tuple[FolderLine, ...] = ()
    missing: tuple[Fact, ...] = ()
    """What holds and was written there, and stands in none of the main files now."""
    doubt: str = ""
    """Why a missing line may not mean that somebody deleted it."""
    forgotten: int = 0
    """Lines of facts that were forgotten since; they stay so."""
    unchanged: int = 0
    problems: tuple[str, ...] = ()
    """Lines that are left alone, and why; places, never words."""

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to take in."""
        return not (self.edits or self.additions or self.missing or self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTaken:
    """What was taken in of a plan, line by line."""

    plan: FolderPlan
    written: tuple[tuple[FolderLine, FactWritten], ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Planning:
    edits: list[FolderEdit] = field(default_factory=list)
    additions: list[FolderLine] = field(default_factory=list)
    unchanged: int = 0
    forgotten: int = 0
    problems: list[str] = field(default_factory=list)


async def read_plan(store: Store, folder: FolderRead, redaction: Redaction) -> FolderPlan:
    """What a folder asks for, held against all that is known and was forgotten."""
    facts = await store.facts(superseded=True)
    known = {fact.id for fact in facts}
    named = {line.id for line in folder.lines if line.id is not None}
    strange = (named | folder.written.keys()) - known
    marks = {fact_identity(id_): id_ for id_ in strange}
    gone = await store.tombstoned(marks)
    forgotten = {id_ for mark, id_ in marks.items() if mark in gone}
    return plan_folder(folder, facts, forgotten=forgotten, redaction=redaction)


def plan_folder(
    folder: FolderRead,
    facts: Sequence[Fact],
    *,
    forgotten: Collection[FactId] = (),
    redaction: Redaction,
) -> FolderPlan:
    """What a folder asks for; `facts` are all that are known, replaced ones too."""
    known = {fact.id: fact for fact in facts}
    planning = _Planning()
    named: dict[FactId, list[FolderLine]] = {}
    ours = {id_ for id_ in folder.written if id_ in known or id_ in forgotten}
    standing = {folder.written[id_]: id_ for id_ in ours & folder.exported}
    learnt = {folder.written[id_]: id_ for id_ in ours}
    for line in folder.lines:
        id_ = line.id
        if id_ is None:  # people's own, or one of ours that lost its name
            names = learnt if line.day is not None else standing
            id_ = next((names[mark] for mark in _marks(line) if mark in names), None)
        if id_ is None or (id_ not in known and id_ not in forgotten):
            if not line.replaced:  # another memory's past is not what holds here
                planning.additions.append(line)
        elif line.id is None:
            planning.unchanged += id_ in known
            planning.forgotten += id_ in forgotten
        else:
            named.setdefault(id_, []).append(line)
    for id_, lines in named.items():
        if id_ in forgotten:
            _plan_forgotten(lines, folder.written.get(id_), planning)
        else:
            _plan_line(known[id_], lines, facts, planning, redaction, folder.written.get(id_))
    return FolderPlan(
        edits=tuple(planning.edits),
        additions=tuple(_known_left_out(planning, facts, redaction)),
        missing=_missing(folder, known),
        doubt=_doubt(folder),
        forgotten=planning.forgotten,
        unchanged=planning.unchanged,
        problems=tuple(planning.problems),
    )


async def take_folder(book: FactBook, plan: FolderPlan) -> FolderTaken:
    """Do what a plan asks for, missing lines aside."""
    written: list[tuple[FolderLine, FactWritten]] = []
    problems = list(plan.problems)
    for edit in plan.edits:
        try:
            words = edit.line.content if edit.reworded else edit.fact.content
            done = await book.edit(edit.fact.id, words, type=edit.type)
            written.append((edit.line, done))
        except RecollectError as error:
            problems.append(f"{_place(edit.line)}: {error}")
    for line in plan.additions:
        try:
            written.append((line, await _added(book, line)))
        except RecollectError as error:
            problems.append(f"{_place(line)}: {error}")
    return FolderTaken(plan=plan, written=tuple(written), problems=tuple(problems))


async def every_fact(book: FactBook) -> tuple[Fact, ...]:
    """All facts, for a folder: those that were replaced, too."""
    return await book.list(FactFilter(superseded=True))


async def _added(book: FactBook, line: FolderLine) -> FactWritten:
    at = None if line.day is None else _start_of(line.day)
    if line.id is None:
        return await book.add(line.content, type=line.type, subject=line.subject, at=at)
    # Another memory's line: its mark is only words, so it is trusted as an assistant at most.
    trust = line.trust if line.trust in ("low", "outside") else "medium"
    return await book.add(
        line.content, type=line.type, subject=line.subject, at=at, made_by="import", trust=trust
    )


def _missing(folder: FolderRead, known: Mapping[FactId, Fact]) -> tuple[Fact, ...]:
    """Facts that hold and whose lines are gone; a line with the same words is theirs."""
    main = [line for line in folder.lines if line.path in MAIN_FILES]
    named = {line.id for line in main}
    marks = {mark for line in main for mark in _marks(line)}
    gone = [
        known[id_]
        for id_ in folder.exported - named
        if id_ in known
        and known[id_].current
        and not {folder.written.get(id_), line_mark(known[id_].content)} & marks
    ]
    return tuple(sorted(gone, key=lambda fact: (fact.at, fact.id)))


def _doubt(folder: FolderRead) -> str:
    if folder.absent:
        return f"{folder.absent[0]} is not there"
    named = {line.id for line in folder.lines if line.path in MAIN_FILES}
    if 2 * len(folder.exported & named) < len(folder.exported):
        return "most lines lost the marks that name their facts"
    return ""


def _plan_forgotten(
    lines: Sequence[FolderLine], as_written: str | None, planning: _Planning
) -> None:
    """Lines of a forgotten fact: nothing to do, unless somebody wrote something else there."""
    changed = [line for line in lines if as_written not in (None, *_marks(line))]
    if changed:
        planning.problems.append(
            f"{_place(changed[0])}: that fact was forgotten, and stays so; write a line of its own"
        )
    else:
        planning.forgotten += 1


def _plan_line(
    fact: Fact,
    lines: Sequence[FolderLine],
    facts: Sequence[Fact],
    planning: _Planning,
    redaction: Redaction,
    as_written: str | None,
) -> None:
    """One fact's lines: in its file, and in the day that it was learnt on.

    What stands as it was written is left as it is, though the fact was masked since.
    """
    # Who took this folder in before finds the later versions in it under the earlier id.
    versions = [other for other in shown_history(fact, facts).facts if other.at >= fact.at]
    versions = [fact] if fact.current else versions
    said = {_comparable(other.content) for other in versions}
    types = {fact.type for fact in versions}
    texts: dict[str, FolderLine] = {}
    moved: dict[FactType, FolderLine] = {}
    for line in lines:
        if not line.content.strip() and fact.content.strip():
            planning.problems.append(f"{_place(line)}: its words are gone; delete the whole line")
            return
        as_it_was = line_mark(line.content) == as_written
        if not as_it_was and not _stored_as(line.content, redaction) & said:
            texts.setdefault(_comparable(line.content), line)
        if line.type is not None and line.type not in types:
            moved.setdefault(line.type, line)
    if not texts and not moved:
        planning.unchanged += 1
    elif len(texts) > 1 or len(moved) > 1:
        places = " and ".join(_place(line) for line in (*texts.values(), *moved.values()))
        planning.problems.append(f"{places}: the same fact, changed in different ways; keep one")
    elif not fact.current:
        place = _place(next(iter((*texts.values(), *moved.values()))))
        planning.problems.append(
            f"{place}: this fact was replaced since; export again, and change the newer one"
        )
    else:
        changed = next(iter(texts.values()), None) or next(iter(moved.values()))
        planning.edits.append(
            FolderEdit(line=changed, fact=fact, type=next(iter(moved), None), reworded=bool(texts))
        )


def _known_left_out(
    planning: _Planning, facts: Sequence[Fact], redaction: Redaction
) -> list[FolderLine]:
    """New lines that say something new, each once: a line may stand in two files."""
    current = [fact for fact in facts if fact.current]
    held = {_comparable(text) for fact in current for text in (fact.content, fact.told)}
    seen: set[str] = set()
    left: list[FolderLine] = []
    for line in planning.additions:
        forms = _stored_as(line.content, redaction)
        if not line.content.strip():
            continue
        if forms & held or forms & seen:
            planning.unchanged += 1
            continue
        seen |= forms
        left.append(line)
    return left


def _marks(line: FolderLine) -> tuple[str, ...]:
    """A line's words as they are told apart: as they stand, and without a subject in brackets."""
    return line_mark(line.content), line_mark(without_subject(line.content))


def _stored_as(content: str, redaction: Redaction) -> set[str]:
    """A line's words as they stand there, and as they would be written."""
    if not content.strip():
        return {""}
    return {_comparable(content), _comparable(stored_words(content, redaction, limit=None)[0])}


def _comparable(text: str) -> str:
    """A text but for its white space: editors break lines."""
    return " ".join(text.split())


def _place(line: FolderLine) -> str:
    return f"{line.path}:{line.number}"


def _start_of(day: str) -> float | None:
    try:
        return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
