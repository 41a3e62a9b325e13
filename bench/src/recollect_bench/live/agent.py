"""Sessions of tool agents, made of domains that were written without sight of the engine.

A domain says in templates what people, tools and the model tell early, what is asked late, and
what ordinary work looks like; a seed fills in the values and the order. Half of the domains may be
looked at when something is changed (`tune`), half may not (`held-out`); `fresh` ones are asked
once, at the end. Always holds: the same domain and seed give the same session; each thing is told
in the first three quarters, each question is asked on a branch in the last one.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
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

AgentHalf: TypeAlias = Literal["tune", "held-out", "fresh"]

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
_SYSTEM: Final = (
    "You are a careful agent with tools. Work in small steps, say what you did in a few sentences, "
    "and ask when something is unclear."
)


def load_domains(half: AgentHalf) -> list[Mapping[str, Any]]:
    """The domains of a half."""
    name = f"agent_domains_{half.replace('-', '_')}.json.gz"
    packed = files("recollect_bench.live").joinpath(name).read_bytes()
    domains: list[Mapping[str, Any]] = json.loads(gzip.decompress(packed))
    return domains


def agent_session(domain: Mapping[str, Any], seed: int, *, turns: int = TURNS) -> LiveSession:
    """A session of this domain."""
    return _Writer(domain, seed, turns).session()


class _Writer:
    """Fills the templates of one domain for one session."""

    def __init__(self, domain: Mapping[str, Any], seed: int, turns: int) -> None:
        self._domain = domain
        self._random = random.Random(f"{domain['domain']} {seed}")
        self._name = f"{domain['domain']}-{seed}"
        self._turns = turns
        self._calls = 0
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
                    messages=tuple(self._messages(template)),
                    at=_BEGUN_AT + turn * _TURN_SECONDS,
                    ordinary=made is None,
                )
            )
        return LiveSession(
            name=self._name,
            exchanges=tuple(exchanges),
            questions=tuple(self._questions()),
            system=_SYSTEM,
            tools=tuple(_tool(name) for name in self._tool_names()),
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

    def _messages(self, template: Mapping[str, Any]) -> list[WireMessage]:
        messages: list[WireMessage] = [user(self._filled(template["user"]))]
        for call in template.get("calls", ()):
            self._calls += 1
            name = f"call_{self._calls:04}"
            arguments = self._filled(json.dumps(call["arguments"], ensure_ascii=False))
            function = {"name": call["name"], "arguments": arguments}
            messages.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": name, "type": "function", "function": function}],
                }
            )
            result = self._filled(call["result"])
            messages.append({"role": "tool", "tool_call_id": name, "content": result})
        messages.append(assistant(self._filled(template["reply"])))
        return messages

    def _questions(self) -> list[tuple[int, LiveQuestion]]:
        first = int(self._turns * _TOLD_SHARE) + 4
        step = max(1, (self._turns - first) // _CHECKPOINTS)
        moments = [min(self._turns, first + step * (at + 1)) for at in range(_CHECKPOINTS)]
        asked: list[LiveQuestion] = []
        for at, one in enumerate(self._domain["questions"]):
            asked.append(self._question(f"q{at}", one["kind"], one))
        for at, one in enumerate(self._domain["follow_ups"]):
            asked.append(self._question(f"f{at}", "follow-up", one))
        for at, text in enumerate(self._domain["nothing"]):
            asked.append(self._question(f"n{at}", "nothing", {"ask": text}))
        self._random.shuffle(asked)
        return sorted(
            ((moments[at % len(moments)], question) for at, question in enumerate(asked)),
            key=lambda pair: pair[0],
        )

    def _question(self, name: str, kind: str, one: Mapping[str, Any]) -> LiveQuestion:
        lead: tuple[WireMessage, ...] = ()
        if "lead" in one:
            lead = (user(self._filled(one["lead"])), assistant(self._filled(one["lead_reply"])))
        needs = [Need(texts=(self._filled(need["literal"]),)) for need in one.get("needs", ())]
        return LiveQuestion(
            name=f"{self._name}-{name}",
            kind=kind,
            ask=self._filled(one["ask"]),
            needs=tuple(needs),
            lead=lead,
            waits=LATER_SECONDS if lead else 0.0,
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

    def _tool_names(self) -> list[str]:
        items: Sequence[Mapping[str, Any]] = [*self._domain["planted"], *self._domain["working"]]
        return sorted({call["name"] for item in items for call in item.get("calls", ())})


def _tool(name: str) -> Mapping[str, Any]:
    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    function = {"name": name, "description": f"Use {name}.", "parameters": schema}
    return {"type": "function", "function": function}
