"""`/memory`: the user looks at what is known, adds to it, and takes from it.

Owns how the words behind the command are read and what is answered; the operations are those of
`Engine.facts`. Must never change anything that was not named, nor keep the words of a fact in the
transcript, where forgetting it could not reach them. Always holds: whatever goes wrong is
answered, with what to do next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from recollect.agent.memory_text import facts_text, forgotten_text, why_text, written_text
from recollect.engine.engine import Engine
from recollect.errors import RecollectError

if TYPE_CHECKING:
    from recollect.engine.facts.book import FactBook

MemoryAction: TypeAlias = Literal["show", "add", "forget", "search", "why"]
USAGE: Final = (
    "/memory show, /memory search WORDS, /memory why ID, /memory add STATEMENT or "
    "/memory forget ID. A beginning of an id that only one fact has will do."
)
_ID: Final = re.compile(r"(?=[0-9]*[a-f])[0-9a-f]{4,64}")
"""What may be kept of the words behind a command: anything else may be what is to be forgotten."""
_WORDS: Final = re.compile(r"(\S+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGround:
    """Whose memory it is."""

    engine: Engine
    session_id: str
    workspace: Path

    def command_line(self, rest: str) -> str:
        """A command for the same memory, to be run elsewhere."""
        return f"recollect {rest} --space {quote(self.engine.space)}"


def recordable(argument: str) -> str:
    """What the transcript may keep of the words behind `/memory`: what was done, and ids."""
    action, rest = _read(argument)
    if action is None:
        return ""
    named = action in ("forget", "why") and _ID.fullmatch(rest)
    return f"{action} {rest}" if named else action


async def answer_memory(argument: str, ground: MemoryGround) -> str:
    """Carry the command out; what it answers."""
    action, rest = _read(argument)
    if action is None:
        return f"That is nothing /memory does. It knows {USAGE}"
    if action != "show" and not rest:
        return f"Something is missing behind `/memory {action}`. It knows {USAGE}"
    try:
        book = await ground.engine.facts(ground.session_id)
        if action in ("show", "search"):
            return await _listed(book, rest if action == "search" else "", ground)
        if action == "add":
            return written_text(await book.add(rest))
        if action == "why":
            return why_text(await book.why(rest), session_id=ground.session_id)
        return await _forget(book, rest, ground)
    except RecollectError as error:
        return f"That could not be done: {str(error).rstrip('.')}."


def _read(argument: str) -> tuple[MemoryAction | None, str]:
    found = _WORDS.fullmatch(argument.strip())
    if found is None:
        return "show", ""
    for action in get_args(MemoryAction):
        if action == found[1]:
            return action, (found[2] or "").strip()
    return None, ""


async def _listed(book: FactBook, search: str, ground: MemoryGround) -> str:
    from recollect.facts.results import FactFilter

    found = await book.list(FactFilter(search=search))
    every = await book.list(FactFilter(superseded=True))
    elsewhere = ground.command_line("facts list")
    return facts_text(found, every, searched=bool(search), elsewhere=elsewhere)


async def _forget(book: FactBook, id: str, ground: MemoryGround) -> str:  # noqa: A002
    """Forget a fact in the store; what only a command can reach is named with that command."""
    from recollect.upkeep.forget import CANNOT

    if waiting := await ground.engine.settle():
        return (
            f"Nothing was forgotten: {waiting} batches still wait for the store, and could hold "
            "it. Try again when the store answers."
        )
    why = await book.why(id)
    history = await book.history(why.fact.id)
    order = await book.order_to_forget([why.fact.id])
    certificate = await book.forget(order)
    # The store has taken it out of this session's recalled blocks: the next turn reads them there.
    segments = [f"--segment {one.id}" for one in why.sources if one.stored is not None]
    rest = " ".join(["memory forget", *segments, "--workspace", quote(str(ground.workspace))])
    return forgotten_text(
        certificate,
        unreached=[one for one in certificate.cannot if one not in CANNOT],
        messages=len(segments),
        versions=[one.id for one in history.facts if one.id != why.fact.id],
        elsewhere=ground.command_line(rest),
    )
