"""The cases of the facts bench: conversations with the facts that a fair judge would keep of them.

Owns the shape of a case, how it is read, and the two halves: one to tune rules on, one held out,
with no case in both. The conversations are files beside it, one case a line. Always holds: a fact
names a message of its own case, and its keys stand in that message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

from recollect.rules.trust import trust_of_role
from recollect.values.fact import EXTRACTED_TYPES, FactType
from recollect.values.message import EntryKey, MessageId, Role
from recollect.values.segment import Segment, SegmentId

# The two halves of the case set


TUNE: Final = "tune"
HELD_OUT: Final = "held-out"
BOTH: Final = "both"
_FILES: Final = {TUNE: "cases_tune.jsonl", HELD_OUT: "cases_held_out.jsonl"}


def load_halves(half: str = BOTH) -> Mapping[str, tuple[Case, ...]]:
    """The cases of each half that is meant."""
    meant = _FILES if half == BOTH else {half: _FILES[half]}
    folder = resources.files("recollect_bench.facts")
    return {
        name: read_cases(folder.joinpath(file).read_text(encoding="utf-8"))
        for name, file in meant.items()
    }


_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}


class CaseError(ValueError):
    """A line of a case file is not a case; says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMessage:
    """A message of a case."""

    role: Role
    text: str = field(repr=False)
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFact:
    """A fact that a fair judge would keep of a case."""

    type: FactType
    keys: tuple[str, ...] = field(repr=False)
    """What every correct wording of it holds."""
    by: int
    """The message that states it."""
    explicit: bool
    """One sentence states it plainly."""
    current: bool
    """Nothing later in the case replaces it."""
    required: bool
    """False: it may be kept, but need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A conversation and its facts."""

    id: str
    kind: str
    languages: tuple[str, ...]
    messages: tuple[CaseMessage, ...] = field(repr=False)
    facts: tuple[CaseFact, ...] = field(repr=False)

    @property
    def language(self) -> str:
        """The one language of it, or `mixed`."""
        return self.languages[0] if len(self.languages) == 1 else "mixed"


def read_cases(text: str) -> tuple[Case, ...]:
    """The cases of a JSONL text; raises `CaseError`."""
    cases: list[Case] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            cases.append(_case(json.loads(line)))
        except (KeyError, TypeError, ValueError) as error:
            raise CaseError(f"line {number} is not a case: {error}") from error
    if len({case.id for case in cases}) < len(cases):
        raise CaseError("two cases have the same id")
    return tuple(cases)


def segments_of(case: Case, *, said_at: float = 0.0) -> tuple[Segment, ...]:
    """The messages of a case as the archive would keep them, a minute apart."""
    return tuple(
        Segment(
            id=SegmentId(f"{case.id}:{at}"),
            session=case.id,
            key=EntryKey(f"{case.id}:{at}"),
            message_id=MessageId(f"{case.id}:{at}"),
            role=message.role,
            text=message.text,
            tokens=len(message.text) // 4,
            said_at=said_at + 60.0 * at,
            source="import",
            trust=trust_of_role(message.role),
            tool=message.tool,
        )
        for at, message in enumerate(case.messages)
    )


def _case(value: dict[str, Any]) -> Case:
    messages = tuple(
        CaseMessage(role=_ROLES[one["role"]], text=one["text"], tool=one.get("tool"))
        for one in value["messages"]
    )
    facts = tuple(_fact(one) for one in value["facts"])
    _check(messages, facts)
    return Case(
        id=value["id"],
        kind=value["kind"],
        languages=tuple(value["languages"]),
        messages=messages,
        facts=facts,
    )


def _fact(value: dict[str, Any]) -> CaseFact:
    if value["type"] not in EXTRACTED_TYPES:
        raise ValueError("a fact has no type that is extracted")
    return CaseFact(
        type=value["type"],
        keys=tuple(value["keys"]),
        by=value["by"],
        explicit=bool(value["explicit"]),
        current=bool(value["current"]),
        required=bool(value["required"]),
    )


def _check(messages: tuple[CaseMessage, ...], facts: Iterable[CaseFact]) -> None:
    for fact in facts:
        if not fact.keys:
            raise ValueError("a fact has no keys")
        if not 0 <= fact.by < len(messages):
            raise ValueError("a fact names no message of its case")
