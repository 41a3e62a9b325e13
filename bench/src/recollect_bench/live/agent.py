"""Sessions of agents with tools, from texts that were written without sight of the engine.

A domain says in templates what people, tools and the model tell early, what is asked late, and
what ordinary work looks like; a seed fills in the values and the order. Half of the domains may be
looked at when something is changed (`tune`), half may not (`held-out`); `fresh` and `new` ones are
asked once, at the end. Always holds: the same domain and seed give the same session; each thing is
told in the first three quarters, each question is asked on a branch in the last one.

Sessions of personal assistants are stored turn by turn, with their times. Only the long lists in
tool results are stored once for all of them and filled in when a session is loaded.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import count
from typing import Any, Final, Literal, TypeAlias

from recollect_bench.live.sessions import (
    Exchange,
    LiveQuestion,
    LiveSession,
    Need,
    WireMessage,
    assistant,
    user,
)
from recollect_bench.live.statements import further_statements

AgentHalf: TypeAlias = Literal["tune", "held-out", "fresh", "new"]

TURNS: Final = 120
LATER_SECONDS: Final = 600.0
"""Between a lead and its follow-up: longer than a provider's cache lives."""
_TOLD_SHARE: Final = 0.72
"""Of the turns, those in which things are told; questions come from behind the last of them."""
_TURN_SECONDS: Final = 40.0
_BEGUN_AT: Final = 1_780_000_000.0
_CHECKPOINTS: Final = 4
"""So many moments of the last quarter at which questions are asked."""
_SLOT: Final = re.compile(r"\{(\w+)\}")
_LINES: Final = re.compile(r"\{\{lines:(\d+)\}\}")
_RANGE: Final = re.compile(r"\{\{(\w+) (\d+) (\d+)\}\}")
"""In an assistant's tool result: a kind of line, the first line, and the end."""
_SYSTEM: Final = (
    "You are a careful agent with tools. Work in small steps, say what you did in a few sentences, "
    "and ask when something is unclear."
)


def load_domains(half: AgentHalf) -> list[Mapping[str, Any]]:
    """The domains of a half."""
    domains: list[Mapping[str, Any]] = _read(f"agent_domains_{half.replace('-', '_')}.json.gz")
    return domains


def load_assistants() -> Mapping[str, Any]:
    """Read the assistants' sessions (`sessions`) and the lines of their long lists (`lines`)."""
    assistants: Mapping[str, Any] = _read("assistant_sessions.json.gz")
    return assistants


def _read(name: str) -> Any:
    return json.loads(gzip.decompress(files("recollect_bench.live").joinpath(name).read_bytes()))


def assistant_sessions(
    *, most_chats: int | None = None, most_questions: int | None = None
) -> list[LiveSession]:
    """Sessions of personal assistants, each for another person over several weeks.

    `most_questions` limits the questions per session, taken evenly from all of them.
    """
    held = load_assistants()
    lines: Mapping[str, Sequence[str]] = held["lines"]

    def filled(text: str) -> str:
        return _RANGE.sub(lambda match: listed(match[1], int(match[2]), int(match[3])), text)

    def listed(kind: str, first: int, end: int) -> str:
        rows = lines[kind]
        return "\n".join(rows[at % len(rows)] for at in range(first, end))

    sessions: list[LiveSession] = []
    for one in held["sessions"][:most_chats]:
        numbers = count(1)
        questions = [
            (asked["after"], _question(f"{one['name']}-{at}", asked["kind"], asked, filled))
            for at, asked in enumerate(one["questions"])
        ]
        step = max(1, len(questions) // (most_questions or len(questions)))
        sessions.append(
            LiveSession(
                name=one["name"],
                exchanges=tuple(
                    Exchange(
                        messages=tuple(_messages(turn, filled, numbers)),
                        at=turn["at"],
                        ordinary=turn.get("ordinary", False),
                    )
                    for turn in one["exchanges"]
                ),
                questions=tuple(questions[::step][:most_questions]),
                system=one["system"],
                tools=_tools(one["exchanges"]),
            )
        )
    return sessions


def agent_session(
    domain: Mapping[str, Any], seed: int, *, turns: int = TURNS, statements: int = 0
) -> LiveSession:
    """A session of this domain, with so many further statements among its turns."""
    session = _Writer(domain, seed, turns).session()
    return with_statements(session, statements) if statements else session


def with_statements(session: LiveSession, count: int) -> LiveSession:
    """The session with so many further statements of the user, spread over all of it.

    Questions are asked after the same exchanges as before, and none of them is about a statement.
    """
    needs = [need for _, question in session.questions for need in question.needs]
    texts = [text for need in needs for text in (*need.texts, *need.any_of)]
    waiting = further_statements(count, session.name, unlike=texts)
    exchanges: list[Exchange] = []
    places: list[int] = []
    turns = len(session.exchanges)
    for turn, exchange in enumerate(session.exchanges, start=1):
        due = count * turn // turns - count * (turn - 1) // turns
        for said, reply in (waiting.pop() for _ in range(due)):
            exchanges.append(Exchange(messages=(user(said), assistant(reply)), at=0.0))
        exchanges.append(exchange)
        places.append(len(exchanges))
    return replace(
        session,
        name=f"{session.name}-{count}",
        exchanges=tuple(
            replace(exchange, at=_BEGUN_AT + at * _TURN_SECONDS)
            for at, exchange in enumerate(exchanges)
        ),
        questions=tuple((places[moment - 1], asked) for moment, asked in session.questions),
    )


class _Writer:
    """Fills the templates of one domain for one session."""

    def __init__(self, domain: Mapping[str, Any], seed: int, turns: int) -> None:
        self._domain = domain
        self._random = random.Random(f"{domain['domain']} {seed}")
        self._name = f"{domain['domain']}-{seed}"
        self._turns = turns
        self._calls = count(1)
        at = self._random.randrange(10_000)
        self._slots = {name: values[at % len(values)] for name, values in domain["slots"].items()}

    def session(self) -> LiveSession:
        told = self._told_turns()
        work = self._work()
        exchanges: list[Exchange] = []
        for turn in range(self._turns):
            made = told.get(turn)
            template = made if made is not None else next(work)
            exchanges.append(
                Exchange(
                    messages=tuple(_messages(template, self._filled, self._calls)),
                    at=_BEGUN_AT + turn * _TURN_SECONDS,
                    ordinary=made is None,
                )
            )
        return LiveSession(
            name=self._name,
            exchanges=tuple(exchanges),
            questions=tuple(self._questions()),
            system=_SYSTEM,
            tools=_tools([*self._domain["planted"], *self._domain["working"]]),
        )

    def _told_turns(self) -> dict[int, Mapping[str, Any]]:
        """Which turn tells what: in any order, but a correction behind what it corrects."""
        planted = list(self._domain["planted"])
        self._random.shuffle(planted)
        last = int(self._turns * _TOLD_SHARE)
        places = sorted(self._random.sample(range(1, last), min(len(planted), last - 1)))
        order = {item["id"]: at for at, item in enumerate(planted)}
        for item in planted:
            corrected = item.get("corrects")
            if corrected is not None and order[corrected] > order[item["id"]]:
                here, there = order[item["id"]], order[corrected]
                order[item["id"]], order[corrected] = there, here
        by_place = {at: item for item in planted for at in [order[item["id"]]]}
        return {place: by_place[at] for at, place in enumerate(places)}

    def _work(self) -> Any:
        while True:
            working = list(self._domain["working"])
            self._random.shuffle(working)
            yield from working

    def _questions(self) -> list[tuple[int, LiveQuestion]]:
        first = int(self._turns * _TOLD_SHARE) + 4
        step = max(1, (self._turns - first) // _CHECKPOINTS)
        moments = [min(self._turns, first + step * (at + 1)) for at in range(_CHECKPOINTS)]
        asked: list[LiveQuestion] = []
        for at, one in enumerate(self._domain["questions"]):
            asked.append(_question(f"{self._name}-q{at}", one["kind"], one, self._filled))
        for at, one in enumerate(self._domain["follow_ups"]):
            asked.append(_question(f"{self._name}-f{at}", "follow-up", one, self._filled))
        for at, text in enumerate(self._domain["nothing"]):
            asked.append(_question(f"{self._name}-n{at}", "nothing", {"ask": text}, self._filled))
        self._random.shuffle(asked)
        return sorted(
            ((moments[at % len(moments)], question) for at, question in enumerate(asked)),
            key=lambda pair: pair[0],
        )

    def _filled(self, text: str) -> str:
        text = _LINES.sub(lambda match: self._lines(int(match[1])), text)
        return _SLOT.sub(lambda match: self._value(match[1], match[0]), text)

    def _lines(self, count: int) -> str:
        return "\n".join(self._random.choice(self._domain["lines"]) for _ in range(count))

    def _value(self, name: str, written: str) -> str:
        if name in self._slots:
            return str(self._slots[name])
        if name == "n":
            return str(self._random.randrange(2, 990))
        if name == "hex":
            return f"{self._random.getrandbits(28):07x}"
        if name == "word":
            return str(self._random.choice(self._domain["words"]))
        return written


def _messages(
    template: Mapping[str, Any], fill: Callable[[str], str], numbers: Iterator[int]
) -> list[WireMessage]:
    messages: list[WireMessage] = [user(fill(template["user"]))]
    for call in template.get("calls", ()):
        name = f"call_{next(numbers):04}"
        arguments = fill(json.dumps(call["arguments"], ensure_ascii=False))
        function = {"name": call["name"], "arguments": arguments}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": name, "type": "function", "function": function}],
            }
        )
        messages.append({"role": "tool", "tool_call_id": name, "content": fill(call["result"])})
    messages.append(assistant(fill(template["reply"])))
    return messages


def _question(
    name: str, kind: str, one: Mapping[str, Any], fill: Callable[[str], str]
) -> LiveQuestion:
    lead: tuple[WireMessage, ...] = ()
    if "lead" in one:
        lead = (user(fill(one["lead"])), assistant(fill(one["lead_reply"])))
    return LiveQuestion(
        name=name,
        kind=kind,
        needs=tuple(Need(texts=(fill(need["literal"]),)) for need in one.get("needs", ())),
        ask=fill(one["ask"]),
        lead=lead,
        waits=LATER_SECONDS if lead else 0.0,
    )


def _tools(templates: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    names = sorted({call["name"] for item in templates for call in item.get("calls", ())})
    return tuple(_tool(name) for name in names)


def _tool(name: str) -> Mapping[str, Any]:
    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    function = {"name": name, "description": f"Use {name}.", "parameters": schema}
    return {"type": "function", "function": function}
