"""One conversation of 40 turns at a window of 8,000 tokens, for every framework and without one.

The model is scripted: what it says depends on the number of the turn alone, so that each framework
holds the very same conversation. Three facts are planted, one of them in what a tool printed, and
asked for when they have long left the view. `held` tells what reached the model, as a provider
would judge it; the conversation held with the library alone is what the others are compared with.
"""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.harness.model_server import Asked, ModelServer, Step

from recollect import BlockingEngine, open_blocking_memory
from recollect.core.rules.identity import segment_id
from recollect.core.values.edit import Edit
from recollect.core.values.recall import BLOCK_CLOSING, BLOCK_OPENING
from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Says, ScriptedCall, WireName

WINDOW: Final = 8_000
SESSION: Final = "harbour"
SYSTEM: Final = "You are a careful colleague at the harbour."
TURNS: Final = 40
PAGES: Final = (3, 9, 15, 21, 27, 33)
"""The turns in which the model reads a page of the log by its tool."""
PLANTED: Final[Mapping[int, str]] = {
    2: "Please note: the staging database listens on port 47113.",
    5: "By the way, Marta Lindqvist approves every release of the scheduler.",
}
QUESTIONS: Final[Mapping[int, tuple[str, str]]] = {
    22: ("Which port does the staging database listen on?", "47113"),
    30: ("Who approves every release of the scheduler?", "Marta Lindqvist"),
    38: ("Which checksum did the log give for the red crane?", "9f3ac2d1cafe"),
}
_CRANE: Final = "The checksum of the red crane is 9f3ac2d1cafe."
_SUBJECTS: Final = (
    "tides", "ropes", "lamps", "pilots", "barges", "ferries", "anchors", "winches", "gulls",
    "buoys", "canals", "locks", "sails", "masts", "docks", "nets", "crates", "gates",
)  # fmt: skip
_TURN: Final = re.compile(r"Turn (\d+): ")
_NAME: Final = re.compile(r"\b[0-9a-f]{32}\b")


class Clock:
    """Stands still, so that blocks say the same times."""

    def now(self) -> float:
        """Always the same moment."""
        return 1_800_000_000.0


def opened(folder: Path, **settings: Any) -> BlockingEngine:
    """A memory that decides the same things every time."""
    chosen = {
        "recall.embedder": "none",
        "jobs.in_process": False,
        "tokens.calibrate": False,
        **settings,
    }
    return open_blocking_memory(
        store=folder / "m.db", window_tokens=WINDOW, clock=Clock(), settings=chosen
    )


def said(turn: int) -> str:
    """What the user says in a turn."""
    subject = _SUBJECTS[turn % len(_SUBJECTS)]
    asked = PLANTED.get(turn) or (QUESTIONS[turn][0] if turn in QUESTIONS else "")
    return f"Turn {turn}: {asked or f'Tell me about the {subject}.'}"


def page(number: int) -> str:
    """What the tool prints."""
    lines = [f"{at:03}: {_SUBJECTS[at % 18]} were looked at on watch {number}" for at in range(60)]
    if number == PAGES[1]:
        lines[30] = _CRANE
    return "\n".join(lines)


def answer(asked: Asked) -> Step:
    """What the model says: by the newest turn, and whether its tool was run in it."""
    rows = asked.body.get("messages") or asked.body["input"]
    turn = max(int(number) for number in _TURN.findall(json.dumps(rows)))
    subject = _SUBJECTS[turn % len(_SUBJECTS)]
    name = f"call_{turn}"
    if turn in PAGES and name not in json.dumps(rows):
        call = ScriptedCall(id=name, name="read_page", input={"number": turn})
        return Says(calls=(call,), id=f"{turn}c")
    told = " ".join(f"The {subject} of quay {at} are in good order." for at in range(turn % 7 + 18))
    return Says(text=f"As for the {subject}: {told}", id=str(turn), stretch_chars=200)


@dataclass(frozen=True, kw_only=True)
class Held:
    """A conversation as it reached the model, and what the memory made of it."""

    bodies: Sequence[Mapping[str, Any]] = field(repr=False)
    edits: Sequence[tuple[Edit, ...]] = field(repr=False)
    """Those that stood after each turn."""
    names: Mapping[str, str] = field(repr=False)
    """The keys, identities and segments of all messages, each with its place in the history."""

    def edits_by_place(self, turns: int) -> list[list[str]]:
        """The edits after each of the first turns, with places for names: those differ where a wire
        has other roles."""
        told: dict[int, str] = {}
        for edit in {id(edit): edit for edits in self.edits[:turns] for edit in edits}.values():
            named = f"{type(edit).__name__} {asdict(edit)}"
            told[id(edit)] = _NAME.sub(lambda name: self.names.get(name[0], "?"), named)
        return [[told[id(edit)] for edit in edits] for edits in self.edits[:turns]]

    @property
    def blocks(self) -> list[list[str]]:
        """The recalled text in each request."""
        return [_blocks(body) for body in self.bodies]

    def asked_in(self, turn: int) -> Mapping[str, Any]:
        """The last request of a turn."""
        return [body for body in self.bodies if _turn(body) == turn][-1]


def check(held: Held, wire: WireName) -> None:
    """Every request is valid and smaller than its window, and the planted facts are there."""
    assert len(held.bodies) == TURNS + len(PAGES)
    for number, body in enumerate(held.bodies):
        assert violations(wire, body, ids_unique_across_messages=True) == [], number
        assert tokens(body) < WINDOW, number
    for turn, (question, fact) in QUESTIONS.items():
        shown = json.dumps(held.asked_in(turn))
        assert question in shown
        assert fact in shown, f"turn {turn}: {fact} is not there"
        assert any(fact in block for block in _blocks(held.asked_in(turn))), turn


def tokens(body: Mapping[str, Any]) -> int:
    """What OpenAI's own vocabulary makes of all that a request says, one thing behind another."""
    rows = body.get("messages") or body["input"]
    return sum(_tokens(text) + 1 for text in (*_texts(rows), json.dumps(body.get("tools"))))


@cache
def _tokens(text: str) -> int:
    """Requests, and frameworks, say the same texts again and again."""
    return len(_encoding().encode(text))


@cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how it reads its own files
        import bpe_openai
    return bpe_openai.get_encoding("o200k_base")


class Conversation:
    """Watches a conversation: give it to a server, and tell it when a turn has ended."""

    def __init__(self, server: ModelServer, memory: BlockingEngine) -> None:
        self._server = server
        self._memory = memory
        self._edits: list[tuple[Edit, ...]] = []

    def turn_ended(self) -> None:
        """Note what stands now."""
        self._edits.append(self._memory.session(SESSION).state.edits)

    @property
    def held(self) -> Held:
        """All of it."""
        bodies = [asked.body for asked in self._server.asked if asked.wire is not None]
        state = self._memory.session(SESSION).state
        names: dict[str, str] = {
            name: f"message {place}"
            for place, (key, identity) in enumerate(zip(state.path, state.ids, strict=True))
            for name in (key, identity, segment_id(SESSION, key))
        }
        return Held(bodies=bodies, edits=tuple(self._edits), names=names)


def plain_chat(folder: Path, tools: Any) -> Held:
    """The conversation with the library and the `openai` client alone, over Chat Completions."""
    import openai

    with ModelServer(answer) as server, opened(folder) as memory:
        client = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0)
        conversation = Conversation(server, memory)
        history: list[dict[str, Any]] = []
        for turn in range(1, TURNS + 1):
            history.append({"role": "user", "content": said(turn)})
            while True:
                request = {"model": "gpt-x", "messages": history, "system": SYSTEM, "tools": tools}
                context = memory.prepare(SESSION, request, format="openai-chat")
                sent: Any = {"role": "system", "content": SYSTEM}
                reply = client.chat.completions.create(
                    model="gpt-x", tools=tools, messages=[sent, *context.request["messages"]]
                )
                memory.observe(SESSION, reply)
                message = reply.choices[0].message
                history.append(message.model_dump(mode="json", exclude_none=True))
                for call in message.tool_calls or ():
                    number = json.loads(call.function.arguments)["number"]  # type: ignore[union-attr]
                    told = {"role": "tool", "tool_call_id": call.id, "content": page(number)}
                    history.append(told)
                if not message.tool_calls:
                    break
            conversation.turn_ended()
        client.close()
        return conversation.held


def plain_messages(folder: Path, tools: Any) -> Held:
    """The conversation with the library and the `anthropic` client alone: what the engine gives
    is what is sent."""
    import anthropic

    with ModelServer(answer) as server, opened(folder) as memory:
        client = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0)
        conversation = Conversation(server, memory)
        history: list[dict[str, Any]] = []
        for turn in range(1, TURNS + 1):
            history.append({"role": "user", "content": said(turn)})
            while True:
                request = {"model": "claude-x", "max_tokens": 400, "system": SYSTEM}
                context = memory.prepare(SESSION, {**request, "messages": history, "tools": tools})
                reply = client.messages.create(**context.request)
                memory.observe(SESSION, reply)
                history.append({"role": "assistant", "content": reply.to_dict()["content"]})
                results = [
                    {"type": "tool_result", "tool_use_id": block.id, "content": page(turn)}
                    for block in reply.content
                    if block.type == "tool_use"
                ]
                if not results:
                    break
                history.append({"role": "user", "content": results})
            conversation.turn_ended()
        client.close()
        return conversation.held


def _turn(body: Mapping[str, Any]) -> int:
    rows = body.get("messages") or body["input"]
    return max(int(number) for number in _TURN.findall(json.dumps(rows)))


def _blocks(body: Mapping[str, Any]) -> list[str]:
    """The recalled blocks of a request, however the wire spells them."""
    texts = list(_texts(body.get("messages") or body["input"]))
    return [
        text[at : text.index(BLOCK_CLOSING, at)]
        for text in texts
        for at in [match.start() for match in re.finditer(re.escape(BLOCK_OPENING), text)]
    ]


def _texts(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value
    texts: list[str] = []
    with suppress(TypeError):
        for item in inner:
            texts.extend(_texts(item))
    return texts
