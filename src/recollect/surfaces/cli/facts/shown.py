"""A fact as the commands show it: short id, who said it, since when, how it was made.

Owns the words for trust and making, the shortest ids that are unique, and the book that the
commands work with. Text and ids of facts are printed so that they cannot move the cursor.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from recollect.errors import RecollectError
from recollect.surfaces.cli.explain_text import plain_line
from recollect.surfaces.cli.store_options import instant, when, with_store
from recollect.values.segment import SPEAKERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rich.text import Text

    from recollect.engine.facts.book import FactBook
    from recollect.ports import Store
    from recollect.surfaces.cli.store_options import Place
    from recollect.values.fact import Fact, FactId, MadeBy
    from recollect.values.segment import Trust

T = TypeVar("T")

LEAST_ID_CHARS = 8
NOTHING_KEPT = "nothing is kept in this space yet"
PINNED = "*"
SPEAKER_STYLES: dict[Trust, str] = {
    "high": "green",
    "medium": "cyan",
    "low": "yellow",
    "outside": "red",
}
MAKERS: dict[MadeBy, str] = {
    "rules": "rules",
    "model": "model",
    "user": "by hand",
    "import": "imported",
}


def book_of(store: Store, place: Place) -> FactBook:
    """The facts of a store, for people."""
    from recollect.boundary import SystemClock
    from recollect.engine.facts.book import FactBook as Book
    from recollect.wiring.models import choose_embedders

    names = [one.name for one in choose_embedders(place.settings).used]
    return Book(store, place.settings, SystemClock(), embedders=names)


def is_unused(url: str | None, space: str) -> bool:
    """Whether nothing was ever kept in a space; a store that is named must be there."""
    from recollect.surfaces.cli.store_options import place_of
    from recollect.wiring.stores import POSTGRES_SCHEMES, sqlite_path

    kept_at = place_of(url, space).url
    if url is not None or (kept_at is not None and kept_at.startswith(POSTGRES_SCHEMES)):
        return False
    return not sqlite_path(kept_at, space).exists()


def with_facts(url: str | None, space: str, work: Callable[[Store, Place], Awaitable[T]]) -> T:
    """Run one piece of work on a space that holds something."""
    if is_unused(url, space):
        raise RecollectError(
            f"{NOTHING_KEPT}; `recollect facts add` writes a fact, `recollect import` reads "
            "recorded sessions"
        )
    return with_store(url, space, work)


def shown_id(id: str) -> str:  # noqa: A002
    """An id on one line; one of a file may be any text."""
    return plain_line(id) or "(no id)"


def short_ids(facts: Iterable[Fact]) -> dict[FactId, str]:
    """The shortest beginnings of ids that tell these facts apart."""
    ordered = sorted(fact.id for fact in facts)
    shown: dict[FactId, str] = {}
    for at, id_ in enumerate(ordered):
        beside = (*ordered[max(at - 1, 0) : at], *ordered[at + 1 : at + 2])
        shared = max((_shared(id_, other) for other in beside), default=0)
        shown[id_] = id_[: max(LEAST_ID_CHARS, shared + 1)]
    return shown


def _shared(one: str, other: str) -> int:
    """How many signs two ids begin with together."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def speaker(fact: Fact) -> str:
    """Whose word it is, and the word that `--trust` and programs know it by."""
    return f"{SPEAKERS[fact.trust]} ({fact.trust})"


def said_by(trust: Trust) -> Text:
    """Whose word something is, in a line."""
    from rich.text import Text as RichText

    lead = "  " if trust == "outside" else "  said by "
    return RichText.assemble((lead, "dim"), (f"{SPEAKERS[trust]} ({trust})", SPEAKER_STYLES[trust]))


def is_past(fact: Fact) -> bool:
    """Whether something has replaced it."""
    return not fact.current


def statement(fact: Fact) -> str:
    """Its words on one line, with its subject where they leave that open."""
    return plain_line(fact.told) or "(no words)"


def told(fact: Fact) -> Text:
    """One line about a fact, without its words: type, who, how, since and until when."""
    from rich.text import Text as RichText

    line = RichText.assemble((fact.type.replace("_", " "), "bold"))
    line.append_text(said_by(fact.trust))
    line.append(f"  {when(fact.at)}")
    if fact.valid_to is not None:
        line.append(f" until {when(fact.valid_to)}")
    elif is_past(fact):
        line.append(", replaced since")
    line.append(f"  {made(fact)}", style="dim")
    if fact.pinned:
        line.append("  pinned", style="bold magenta")
    return line


def made(fact: Fact) -> str:
    """How it became a fact."""
    return {
        "rules": "found by rules",
        "model": "found by a model",
        "user": "written by hand",
        "import": "imported",
    }[fact.made_by]


def as_json(fact: Fact) -> dict[str, Any]:
    """Everything that is kept of it, but for what only searching needs."""
    return {
        "id": fact.id,
        "type": fact.type,
        "content": fact.content,
        "context": fact.context,
        "subject": fact.subject,
        "attribute": fact.attribute,
        "trust": fact.trust,
        "made_by": fact.made_by,
        "since": instant(fact.at),
        "until": instant(fact.valid_to),
        "recorded_at": instant(fact.recorded_at),
        "change": fact.change,
        "superseded_by": fact.superseded_by,
        "session": fact.session,
        "pinned": fact.pinned,
        "sources": list(fact.sources),
        "evidence": [
            {"segment": one.segment, "start": one.start, "end": one.end} for one in fact.evidence
        ],
    }
