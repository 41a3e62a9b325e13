"""What the recall bench asks of which memory: the shape of a question set, and where it lies.

Owns the values and the way to the files. It must never bring any of the data into the
repository: sets are read from `RECOLLECT_DATA` each time, and one that is not there is told by
name. Always holds: a question's gold are places in its own memory, each named once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Final, Literal, TypeAlias

Split: TypeAlias = Literal["tune", "hold"]
"""Whether a recipe was tuned on the question; what is held back is what to believe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message of a memory."""

    text: str = field(repr=False)
    role: Literal["user", "assistant"]
    session: str
    said_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and the messages that answer it."""

    text: str = field(repr=False)
    """The last user messages, oldest first."""
    gold: tuple[int, ...]
    """Places in the memory's messages."""
    category: str
    split: Split
    answer: str = field(default="", repr=False)
    newest: str = field(default="", repr=False)
    """The newest user message alone, where `text` is more than that."""
    now: float | None = None
    """When it is asked; None where the set does not say: just after the last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One chat, or one pool of them, with the questions about it: a space of its own."""

    name: str
    messages: tuple[Said, ...] = field(repr=False)
    questions: tuple[Question, ...] = field(repr=False)

    @property
    def ends_at(self) -> float:
        """Just after the last message."""
        return max(message.said_at for message in self.messages) + 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """A set as it is measured."""

    name: str
    memories: tuple[Memory, ...] = field(repr=False)
    strangers: tuple[Question, ...] = field(default=(), repr=False)
    """Questions of another set, for one that is a single memory and has no other chat."""
    same_events: bool = False
    """Its memories tell of the same, as in two languages: none is a stranger to another."""
    notes: tuple[str, ...] = ()

    @property
    def questions(self) -> int:
        """How many there are."""
        return sum(len(memory.questions) for memory in self.memories)


SETS: Final = {
    "locomo": ("recall.chats", "locomo"),
    "longmemeval": ("recall.chats", "longmemeval"),
    "beam": ("recall.chats", "beam"),
    "madial": ("recall.chinese", "madial"),
    "memdaily": ("recall.chinese", "memdaily"),
}
"""The module and function that reads each set."""

QUICK_MEMORIES: Final = 2
QUICK_QUESTIONS: Final = 25


def load_set(name: str, *, quick: bool = False) -> QuestionSet:
    """Read a set; `quick` takes a few questions about the first memories, to see that it runs."""
    module, function = SETS[name]
    read: Callable[[], QuestionSet] = getattr(import_module(f"recollect_bench.{module}"), function)
    loaded = read()
    return _shortened(loaded) if quick else loaded


def _shortened(whole: QuestionSet) -> QuestionSet:
    memories = tuple(
        replace(memory, questions=_spread(memory.questions))
        for memory in whole.memories[:QUICK_MEMORIES]
    )
    return replace(whole, memories=memories, strangers=_spread(whole.strangers))


def _spread(questions: Sequence[Question]) -> tuple[Question, ...]:
    """Some of them, from everywhere, so that every category has a chance."""
    step = max(1, len(questions) // QUICK_QUESTIONS)
    return tuple(questions[::step][:QUICK_QUESTIONS])
