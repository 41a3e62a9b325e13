"""A scripted conversation as its client keeps it: every request holds the whole history.

The texts are the source files and docstrings of Python's standard library, so they vary and
compress as real work does, and nothing has to be downloaded.
"""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal["agent", "chat"]
TOOLS: Final = [
    {
        "name": "read_file",
        "description": "Read some lines of a file.",
        "input_schema": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
        },
    },
    {
        "name": "run_tests",
        "description": "Run the tests of a module.",
        "input_schema": {"type": "object", "properties": {"module": {"type": "string"}}},
    },
]
_LEAST_DOCSTRING_CHARS: Final = 120
_MOST_FILES: Final = 160
_TASKS: Final = (
    "In {module} have a look at `{name}`: {detail} What would you change first?",
    "We ship release {number} on Thursday. Please check how {module} uses `{name}` before that.",
    "I get a {error} from `{name}` in {module} after about {number} calls. {detail} Why?",
    "From now on {module} may not import anything new; `{name}` has to work without it. {detail}",
    "Rename `{name}` in {module} and keep the old name for {number} more days.",
    "How does `{name}` behave if its input is empty? {detail}",
    "Please write a test for `{name}` ({module}) with {number} cases.",
    "Thanks. Continue with `{name}` in {module}.",
)
_TALK: Final = (
    "How long should {food} stay in the oven for {number} people, and what goes with it?",
    "My {person} visits us in {month}, so we want to show {person_too} the {place}.",
    "It rained again, therefore the walk to the {place} has to wait until {day}.",
    "Could you suggest something light to read about {topic} before {day}?",
    "We paid {number} euros for the {thing} and it already makes a strange noise.",
    "I would rather start with {topic} and leave the rest for {month}.",
    "The {thing} in the kitchen is too loud, what would you replace it with?",
    "On {day} we have {number} guests, half of them do not eat {food}.",
    "That depends on the season: in {month} the {place} is crowded, later it is calm.",
    "A good rule is to begin early, take breaks, and keep {topic} for the evening.",
    "You could ask your {person}, since {topic} is something that needs practice.",
    "Mix it slowly, let it rest for {number} minutes, then serve it with {food}.",
)
_SLOTS: Final[dict[str, tuple[str, ...]]] = {
    "food": ("bread", "lentils", "salmon", "noodles", "plums", "cheese", "beans", "rice"),
    "person": ("aunt", "neighbour", "brother", "teacher", "cousin", "colleague"),
    "person_too": ("her", "him", "them"),
    "place": ("harbour", "old mill", "castle", "museum", "botanic garden", "lake", "market"),
    "day": ("Monday", "Thursday", "the weekend", "tomorrow", "Friday evening"),
    "month": ("March", "June", "September", "winter", "the holidays"),
    "topic": ("gardening", "sleep", "astronomy", "small talk", "budgets", "old trains", "yoga"),
    "thing": ("kettle", "bicycle", "washing machine", "lamp", "radio", "fan"),
    "number": tuple(str(number) for number in range(3, 60)),
}
_ERRORS: Final = ("TimeoutError", "KeyError", "ValueError", "RecursionError", "BrokenPipeError")


class Talk:
    """A conversation that grows by one request and one reply per turn."""

    def __init__(self, kind: Kind = "agent", *, seed: int = 7) -> None:
        self.kind = kind
        self.messages: list[dict[str, Any]] = []
        self._random = random.Random(seed)
        self._rounds_left = 0
        self._calls = 0

    def request(self) -> dict[str, Any]:
        """The next request; a question of the user, or the results of the last calls."""
        last = self.messages[-1] if self.messages else None
        calls = [] if last is None else [p for p in last["content"] if p["type"] == "tool_use"]
        if calls:
            parts = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": self._result(call)}
                for call in calls
            ]
        else:
            question = self._small_talk(2) if self.kind == "chat" else self._question()
            parts = [{"type": "text", "text": question}]
            if self.kind == "agent":
                self._rounds_left = self._random.choice((0, 0, 1, 1, 2, 3))
        self.messages.append({"role": "user", "content": parts})
        request: dict[str, Any] = {
            "model": "scripted",
            "max_tokens": 1_000,
            "system": "You help with a Python code base. Answer briefly.",
            "messages": list(self.messages),
        }
        return {**request, "tools": TOOLS} if self.kind == "agent" else request

    def reply(self) -> dict[str, Any]:
        """The scripted reply to the last request, which joins the history."""
        parts: list[dict[str, Any]] = []
        if self._rounds_left:
            self._rounds_left -= 1
            if self._random.random() < 0.5:
                parts.append({"type": "text", "text": _sentences(self._prose(), 1)})
            parts.append(self._call())
        elif self.kind == "chat":
            parts.append({"type": "text", "text": self._small_talk(self._random.randint(4, 16))})
        else:
            parts.append({"type": "text", "text": _sentences(self._prose(), 30)})
        message = {"role": "assistant", "content": parts}
        self.messages.append(message)
        return {
            **message,
            "id": f"msg_{len(self.messages)}",
            "type": "message",
            "model": "scripted",
            "stop_reason": "tool_use" if parts[-1]["type"] == "tool_use" else "end_turn",
        }

    def _question(self) -> str:
        module, name, text = self._random.choice(_docstrings())
        return self._random.choice(_TASKS).format(
            module=module,
            name=name,
            detail=_sentences(text, 2),
            error=self._random.choice(_ERRORS),
            number=self._random.randint(2, 9_999),
        )

    def _small_talk(self, sentences: int) -> str:
        """What people write to an assistant all day: no code, few names."""
        drawn = [self._random.choice(_TALK) for _ in range(sentences)]
        return " ".join(
            one.format(**{slot: self._random.choice(words) for slot, words in _SLOTS.items()})
            for one in drawn
        )

    def _prose(self) -> str:
        drawn = self._random.sample(_docstrings(), self._random.choice((1, 2, 4, 6)))
        return " ".join(f"{name} ({module}): {text}" for module, name, text in drawn)

    def _call(self) -> dict[str, Any]:
        self._calls += 1
        called = {"type": "tool_use", "id": f"toolu_{self._calls:06d}"}
        path = self._random.choice(_files())
        if self._random.random() < 0.7:
            line = self._random.randint(1, max(1, len(_lines(path)) - 40))
            return {**called, "name": "read_file", "input": {"path": path.name, "line": line}}
        return {**called, "name": "run_tests", "input": {"module": path.stem}}

    def _result(self, call: dict[str, Any]) -> str:
        given = call["input"]
        if call["name"] == "read_file":
            path = next(file for file in _files() if file.name == given["path"])
            return "\n".join(_lines(path)[given["line"] : given["line"] + self._length()])
        cases = [name for module, name, _ in _docstrings() if module == given["module"]]
        lines = [
            f"test_{given['module']}.py::test_{name} "
            + self._random.choice(("PASSED", "PASSED", "PASSED", "FAILED"))
            for name in cases[: self._length()]
        ]
        return "\n".join([*lines, f"{len(lines)} tests in {self._random.random() * 9:.2f} s"])

    def _length(self) -> int:
        return self._random.choice((15, 40, 80, 120))


def _sentences(text: str, count: int) -> str:
    return ". ".join(text.split(". ")[:count])


@cache
def _files() -> tuple[Path, ...]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    return tuple(sorted(folder.glob("[a-z]*.py")))[:_MOST_FILES]


@cache
def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())


@cache
def _docstrings() -> tuple[tuple[str, str, str], ...]:
    """Module, name and text of the functions and classes that say what they do."""
    return tuple(text for path in _files() for text in _documented(path))


def _documented(path: Path) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(ast.parse("\n".join(_lines(path)))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            text = " ".join((ast.get_docstring(node) or "").split())
            if len(text) >= _LEAST_DOCSTRING_CHARS:
                yield path.stem, node.name, text
