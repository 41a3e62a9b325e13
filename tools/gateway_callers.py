"""`python -m tools.gateway_callers`: pairs of callers whose conversations begin alike.

Each pair sends two conversations through a real gateway to a real local provider: with the same
examples, primer, greeting, template or prompts, with one key or two, on three wires. The key is in
one of 26 places. Sixteen of them have names drawn at random, so that no list can know them, or no
name: a word of the query or of the cookies, or a tenant's host. Some conversations give their
session a name, which two callers then share. Most requests have headers that change on every
request. Every caller says words of its own, and asks for them. The report counts crossings (a
caller's words in the other's request, or both callers' words in one session) and the continuations
that were recognised, also after the gateway was restarted.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import random
import re
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit
from uuid import UUID

from tests.harness.model_server import Asked, ModelServer, Step

from recollect.core.values.model import Usage
from recollect.hosts.gateway.running import BackgroundGateway
from recollect.system.config import load_settings
from recollect.testing.scripted_model import Fails, Says, ScriptedCall

Wire: TypeAlias = Literal["anthropic", "openai-chat", "openai-responses"]
Row: TypeAlias = dict[str, Any]

PATHS: Final[dict[Wire, str]] = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}
WIRES: Final[tuple[Wire, ...]] = tuple(PATHS)
BEGINNINGS: Final = (
    *("examples", "primer", "primer-given", "primer-and-question", "greeting"),
    *("equal prompts", "template"),
)
"""What the two conversations of a pair share."""
_OWN: Final = re.compile(r"code (\w+-\w+-\w+)")
_GREETING: Final = "Hello! How can I help you today?"
_ANSWERS: Final = (
    "Noted.",
    "Understood. I will keep to that from here on, in every answer I give.",
)
_FAILING: Final = 0.1
_CANCELLED: Final = 0.04
_TOOLS: Final = 0.2
_VOLATILE: Final = 0.05
_THINKING: Final = 0.2
_NAMED: Final = 0.3
_CHANGING: Final = 0.7
_RANDOM_PLACES: Final = (
    *("header",) * 4,
    *("cookie", "cookie", "query", "query"),
    *("part of a cookie", "bearer in a header"),
    *("word of a cookie", "word of the query", "empty query value"),
    *("host", "x-forwarded-host", "origin"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a caller's key is in a request."""

    header: str = ""
    """The header; empty for a query value."""
    pattern: str = "KEY"
    """The header's value or the query, with KEY in place of the key."""

    def put(self, key: str, headers: dict[str, str]) -> str:
        """Add a key to the headers of a request, and return its query."""
        if not self.header:
            return self.pattern.replace("KEY", quote(key))
        if "BASIC" in self.pattern:
            key = base64.b64encode(f"{key}:x".encode()).decode()
        value = self.pattern.replace("KEY", key).replace("BASIC", key)
        headers[self.header] = "; ".join(filter(None, (headers.get(self.header), value)))
        return ""


KNOWN_PLACES: Final = (
    Place(header="authorization", pattern="Bearer KEY"),
    Place(header="authorization", pattern="Basic BASIC"),
    Place(header="x-api-key"),
    Place(header="x-litellm-api-key"),
    Place(header="ocp-apim-subscription-key"),
    Place(header="cf-aig-authorization", pattern="Bearer KEY"),
    Place(header="openai-organization"),
    Place(header="x-forwarded-user"),
    Place(header="cookie", pattern="session=KEY"),
    Place(pattern="key=KEY"),
)


def random_places(rng: random.Random) -> list[Place]:
    """Places whose names nobody knows, or that have none."""
    places = []
    for kind in _RANDOM_PLACES:
        name = _random_name(rng)
        if kind in ("host", "x-forwarded-host", "origin"):
            scheme = "https://" if kind == "origin" else ""
            places.append(Place(header=kind, pattern=f"{scheme}KEY.{name}.example"))
        elif kind == "word of a cookie":
            places.append(Place(header="cookie"))
        elif kind in ("word of the query", "empty query value"):
            places.append(Place(pattern="KEY=" if kind == "empty query value" else "KEY"))
        elif kind == "query":
            places.append(Place(pattern=f"beta=true&{name}=KEY"))
        elif "cookie" in kind:
            more = "; theme=dark" if "part" in kind else ""
            places.append(Place(header="cookie", pattern=f"{name}=KEY{more}"))
        else:
            bearer = "Bearer " if "bearer" in kind else ""
            places.append(Place(header=f"x-{name}", pattern=f"{bearer}KEY"))
    return places


def _random_name(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(4, 9)))


class ChangingHeaders:
    """Headers, cookies and query values that differ in every request: of names that proxies use,
    and of names that nobody knows."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._names = [f"x-{_random_name(rng)}" for _ in range(3)]
        self._count = 0

    def add(self, headers: dict[str, str], query: str) -> str:
        """Add some of them to a request's headers, and return the query with more."""
        rng, self._count = self._rng, self._count + 1
        unique, span = UUID(int=rng.getrandbits(128)), f"{rng.getrandbits(64):016x}"
        values = {
            "traceparent": f"00-{unique.hex}-{span}-01",
            "x-request-id": str(unique),
            "x-amzn-trace-id": f"Root=1-{span[:8]}-{unique.hex[:24]}",
            "cf-ray": f"{span}-FRA",
            "idempotency-key": f"stainless-python-retry-{unique}",
            "date": formatdate(time.time() + self._count, usegmt=True),
            "x-stainless-retry-count": str(self._count % 3),
            "user-agent": f"desk/1.{self._count}",
            "x-forwarded-for": f"10.0.{self._count % 250}.7:{20_000 + self._count}",
            "x-datadog-parent-id": str(rng.getrandbits(63)),
            "correlation-id": str(unique),
            "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + self._count)),
            self._names[0]: str(unique),
            self._names[1]: str(self._count),
            self._names[2]: f"{time.time() + self._count:.6f}",
        }
        headers.update({name: value for name, value in values.items() if rng.random() < 0.5})
        if rng.random() < 0.5:
            cookies = (headers.get("cookie"), f"__cf_bm={span}", f"AWSALB={unique.hex}")
            headers["cookie"] = "; ".join(filter(None, cookies))
        return f"{query}&_={self._count}" if rng.random() < 0.3 else query


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of all pairs."""

    pairs: int = 0
    requests: int = 0
    crossings: list[str] = field(default_factory=list)
    continued: Counter[str] = field(default_factory=Counter)
    """Requests that continue a conversation, by kind: "turn", "retry", "restart", "cancelled", and
    "left out" of clients that leave out a message which they sent before."""
    recognised: Counter[str] = field(default_factory=Counter)
    """Of these, those that got the session of the conversation's last request."""
    missed: Counter[str] = field(default_factory=Counter)
    """The others, by kind, beginning and wire."""

    def share(self, *kinds: str) -> float:
        """The share that was recognised, of these kinds."""
        whole = sum(self.continued[kind] for kind in kinds)
        return sum(self.recognised[kind] for kind in kinds) / whole if whole else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "pairs": self.pairs,
            "requests": self.requests,
            "crossings": self.crossings,
            "continued": dict(self.continued),
            "recognised": {kind: round(self.share(kind), 4) for kind in sorted(self.continued)},
            "recognised_whole": round(self.share("turn", "retry", "restart"), 4),
            "missed": dict(self.missed.most_common()),
        }


class Talk:
    """One conversation of one caller, as a client without session names holds it."""

    def __init__(
        self,
        wire: Wire,
        key: str,
        name: str,
        shared: Sequence[Row],
        rng: random.Random,
        *,
        place: Place,
        session_name: str | None = None,
    ) -> None:
        self.wire, self.key, self.name = wire, key, name
        self.place, self.session_name = place, session_name
        self.changes = rng.random() < _CHANGING
        """Whether some of its headers differ in every request."""
        self.rows: list[Row] = list(shared)
        self.session: str | None = None
        self.forks = False
        """Whether another conversation has the same history: one of them gets a new session."""
        self.sent = b""
        """The body of its last request; a library's own retry sends the same bytes."""
        self.last: Literal["answered", "failed", "cancelled"] = "answered"
        """What became of its last request."""
        self.own: set[str] = set()
        """Words that only this caller says."""
        self._rng = rng
        self.volatile = rng.random() < _VOLATILE
        self._marks = rng.random() < 0.5
        self._system = f"Be brief. You talk to {name}." if rng.random() < 0.3 else "Be brief."
        self._keeps_thinking = rng.random() < 0.5
        self._turn = 0
        self.steps = self._steps()

    def _steps(self) -> Iterator[str]:
        """What the user says next."""
        while True:
            self._turn += 1
            code = f"{self.name}-{self._turn}-{self._rng.randrange(10**6):06d}"
            self.own.add(code)
            yield f"My own code {code} opens the locker. What was my first code?"

    def body(self, *, stream: bool) -> bytes:
        """The request as the client writes it now."""
        rows = [self._spelled(row, at) for at, row in enumerate(self.rows)]
        if self.volatile:
            code = f"{self.name}-0-{self._rng.randrange(10**6):06d}"
            self.own.add(code)
            rows.append(_said(self.wire, "user", f"My own code {code} is the newest of today."))
        tool = {"name": "look", "description": "look it up", "input_schema": {"type": "object"}}
        if self.wire == "anthropic":
            given: Row = {"max_tokens": 64, "system": self._system, "tools": [tool]}
            return _json({"model": "m", "messages": rows, "stream": stream, **given})
        if self.wire == "openai-chat":
            rows.insert(0, {"role": "system", "content": self._system})
            return _json({"model": "m", "messages": rows, "stream": stream})
        given = {"instructions": self._system, "input": rows}
        return _json({"model": "m", "stream": stream, **given})

    def _spelled(self, row: Row, at: int) -> Row:
        """A row with cache marks that move, or a string in place of its one block."""
        content = row.get("content")
        if not self._marks or self.wire != "anthropic" or not isinstance(content, str):
            return row
        block: Row = {"type": "text", "text": content}
        if at >= len(self.rows) - 2:
            block["cache_control"] = {"type": "ephemeral"}
        return {**row, "content": [block]}

    def take(self, reply: Any) -> bool:
        """Add a whole reply to the history, as an SDK's user would; whether it calls a tool."""
        rows, calls = _reply_rows(self.wire, reply, keeps_thinking=self._keeps_thinking)
        self.rows += rows
        self.rows += [_result(self.wire, call) for call in calls]
        return bool(calls)


def _said(wire: Wire, role: str, text: str) -> Row:
    if wire == "openai-responses":
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return {"role": role, "content": text}


def _words(row: Row) -> str:
    """What a row says, however it is spelled."""
    content = row.get("content")
    blocks = content if isinstance(content, list) else [{"text": content}]
    text = "".join(str(block.get("text") or block.get("content") or "") for block in blocks)
    return f"{row.get('role')} {row.get('call_id') or row.get('tool_call_id')} {text}"


def _reply_rows(wire: Wire, reply: Any, *, keeps_thinking: bool) -> tuple[list[Row], list[str]]:
    """A reply as rows of the next request, and the ids of its calls."""
    if isinstance(reply, str):  # a stream that was read for its text
        return [_said(wire, "assistant", reply)], []
    if wire == "anthropic":
        blocks = [b for b in reply["content"] if keeps_thinking or b["type"] != "thinking"]
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        return [{"role": "assistant", "content": blocks}], calls
    if wire == "openai-chat":
        message = {key: value for key, value in reply["choices"][0]["message"].items() if value}
        message.pop("reasoning_content", None)
        return [message], [call["id"] for call in message.get("tool_calls", ())]
    items = [item for item in reply["output"] if keeps_thinking or item["type"] != "reasoning"]
    return items, [item["call_id"] for item in items if item["type"] == "function_call"]


def _result(wire: Wire, call: str) -> Row:
    text = "The locker list is long."
    if wire == "anthropic":
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return {"role": "user", "content": [block]}
    if wire == "openai-chat":
        return {"role": "tool", "tool_call_id": call, "content": text}
    return {"type": "function_call_output", "call_id": call, "output": text}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def provider(seed: int) -> Any:
    """What answers: alike for alike prompts, by the words of the newest one."""
    rng = random.Random(seed)
    count = iter(range(10**9))

    def answer(asked: Asked) -> Step:
        if asked.headers.get("x-fails"):
            return Fails(status=529)
        last = asked.content.rpartition(b'"user"')[2]
        text = _GREETING if b"hello" in last.lower() else _ANSWERS[len(last) % 2]
        own = _OWN.findall(last.decode(errors="replace"))
        if own and rng.random() < 0.5:
            text = f"I wrote down {own[-1]} for you, and will name it when you ask for it again."
        number = str(next(count))
        calls: tuple[ScriptedCall, ...] = ()
        if own and rng.random() < _TOOLS and not json.loads(asked.content).get("stream"):
            calls = (ScriptedCall(id=f"call_{number}", name="look", input={"what": "lockers"}),)
        return Says(
            id=number,
            text=text,
            calls=calls,
            thinking="Let me see." if rng.random() < _THINKING else "",
            usage=Usage(input_tokens=len(asked.content) // 4, output_tokens=9),
            hang_after_events=4 if asked.headers.get("x-leaves") else None,
        )

    return answer


def shared_rows(beginning: str, wire: Wire, pair: int, rng: random.Random) -> list[Row]:
    """What both conversations of a pair begin with; some beginnings are shared by many pairs."""
    topic = rng.choice(("ships", "trains", f"lockers of hall {pair}"))
    if beginning == "examples":
        rows = []
        for at in range(rng.randint(1, 3)):
            rows += [
                _said(wire, "user", f"Example {at} about {topic}"),
                _said(wire, "assistant", "A"),
            ]
        return rows
    if beginning == "primer-given":
        return [_said(wire, "user", f"You know {topic}."), _said(wire, "assistant", _ANSWERS[1])]
    if beginning == "primer-and-question":
        return [_said(wire, "user", f"You know {topic}.")]
    return []


def first_prompts(beginning: str, rng: random.Random) -> list[str]:
    """What both conversations say first, in requests of their own."""
    if beginning == "primer":
        return ["You are an expert on ships. Wait for my question."]
    if beginning == "greeting":
        return [rng.choice(("hello", "Hello!"))]
    if beginning == "equal prompts":
        return ["Who keeps the light?", "And who keeps the log?"][: rng.randint(1, 2)]
    return []


class Lab:
    """A gateway that is restarted between phases, and what its answers show."""

    def __init__(self, server: ModelServer, result: Result, rng: random.Random) -> None:
        self._server, self._result, self._rng = server, result, rng
        self._connection: http.client.HTTPConnection | None = None
        self._base = ""
        self._said_in: dict[str, set[str]] = {}
        """Whose own words were sent in a session."""
        self._held: dict[str, list[str]] = {}
        """What a session's last request said."""
        self._changing = ChangingHeaders(rng)
        self.restarted: set[str] = set()
        """Conversations that sent nothing since the gateway was restarted."""

    def connect(self, url: str, talks: Sequence[Talk]) -> None:
        """Talk to another gateway from now on."""
        self.disconnect()
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._base = parts.path
        self.restarted = {talk.name for talk in talks if talk.session is not None}

    def disconnect(self) -> None:
        """Let go of the gateway."""
        if self._connection is not None:
            self._connection.close()

    def turn(self, talk: Talk, words: str, *, beginning: str) -> None:
        """One turn of a user's, with the calls that its replies ask for."""
        talk.rows.append(_said(talk.wire, "user", words))
        if self._rng.random() < _CANCELLED:
            self._leave(talk, beginning)
            return
        stream = self._rng.random() < 0.5
        if self._rng.random() < _FAILING:
            self._send(talk, beginning, stream=stream, fails=True)
        while talk.take(self._send(talk, beginning, stream=stream)):
            stream = False

    def _send(self, talk: Talk, beginning: str, *, stream: bool, fails: bool = False) -> Any:
        """Send the conversation as it is; the reply's JSON, or its text where it is streamed."""
        assert self._connection is not None
        headers, query = self._headers(talk)
        headers |= {"x-fails": "1"} if fails else {}
        body = talk.body(stream=stream) if talk.last != "failed" else talk.sent
        talk.sent = body
        self._connection.request("POST", self._base + PATHS[talk.wire] + query, body, headers)
        response = self._connection.getresponse()
        content = response.read()
        self._note(talk, beginning, response.headers["x-recollect-report"])
        if fails:
            talk.last = "failed"
            return None
        return _text_of(talk.wire, content) if stream else json.loads(content)

    def _leave(self, talk: Talk, beginning: str) -> None:
        """Begin to read a stream and go away; the client keeps none of the reply."""
        assert self._connection is not None
        parts = self._connection.host, self._connection.port
        leaving = http.client.HTTPConnection(*parts, timeout=60)
        headers, query = self._headers(talk)
        headers |= {"x-leaves": "1"}
        target = self._base + PATHS[talk.wire] + query
        leaving.request("POST", target, talk.body(stream=True), headers)
        response = leaving.getresponse()
        response.read1()
        self._note(talk, beginning, response.headers["x-recollect-report"])
        response.close()
        leaving.close()
        self._server.wait_until_hung_up()
        talk.last = "cancelled"

    def _headers(self, talk: Talk) -> tuple[dict[str, str], str]:
        """The headers of a request, and its query."""
        headers = {"content-type": "application/json"}
        if talk.session_name is not None:
            headers["x-recollect-session"] = talk.session_name
        query = talk.place.put(talk.key, headers)
        if talk.changes:
            query = self._changing.add(headers, query)
        return headers, f"?{query}" if query else ""

    def _note(self, talk: Talk, beginning: str, report: str) -> None:
        session = report.rpartition("/")[0]
        kind = "retry" if talk.last == "failed" else "turn"
        if talk.last == "cancelled":
            kind = "cancelled"
        elif talk.volatile:
            kind = "left out"
        elif talk.name in self.restarted:
            kind = "restart"
        talk.last = "answered"
        self.restarted.discard(talk.name)
        self._result.requests += 1
        texts = [_words(row) for row in talk.rows]
        before = self._held.get(session)
        self._held[session] = texts
        if talk.session is not None and not talk.forks:
            self._result.continued[kind] += 1
            # of two sessions that hold the same words either is right
            same = before is not None and before == texts[: len(before)]
            self._result.recognised[kind] += same
            if not same:
                self._result.missed[f"{kind}, {beginning}, {talk.wire}"] += 1
        talk.session, talk.forks = session, False
        sent = self._server.asked[-1].content.decode()
        strangers = {code.partition("-")[0] for code in _OWN.findall(sent)} - {talk.name}
        if strangers:
            self._result.crossings.append(f"{talk.name} ({beginning}): the words of {strangers}")
        if talk.own:
            owners = self._said_in.setdefault(session, set())
            owners.add(talk.name)
            if len(owners) > 1:
                self._result.crossings.append(f"{beginning}: {sorted(owners)} share {session}")


def _text_of(wire: Wire, content: bytes) -> str:
    """The text of a streamed reply."""
    text = ""
    for line in content.splitlines():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if wire == "openai-chat":
            choices = event.get("choices") or [{}]
            text += (choices[0].get("delta") or {}).get("content") or ""
        elif wire == "anthropic":
            text += (event.get("delta") or {}).get("text") or ""
        elif event.get("type") == "response.output_text.delta":
            text += event["delta"]
    return text


def run_pairs(pairs: int, *, seed: int = 0, turns: int = 2) -> Result:
    """Send so many pairs of conversations, each before and after a restart."""
    rng = random.Random(seed)
    result = Result(pairs=pairs)
    places = [*KNOWN_PLACES, *random_places(rng)]
    talks: list[tuple[Talk, str]] = []
    for number in range(pairs):
        wire, beginning = WIRES[number % len(WIRES)], rng.choice(BEGINNINGS)
        shared = shared_rows(beginning, wire, number, rng)
        same_key, named = rng.random() < 0.5, rng.random() < _NAMED
        place = places[number % len(places)]
        for caller in "ab":
            name = f"{caller}{number}"
            key = f"key-{number % 7}" if same_key else f"key-{number}-{caller}"
            # one caller gives its conversations different names, two callers choose the same
            session_name = (name if same_key else f"desk {number % 3}") if named else None
            talk = Talk(wire, key, name, shared, rng, place=place, session_name=session_name)
            talks.append((talk, beginning))
    with ModelServer(provider(seed)) as server:
        settings = load_settings(
            arguments={
                "gateway.port": 0,
                "gateway.upstream.anthropic": server.url,
                "gateway.upstream.openai": f"{server.url}/v1",
                "recall.embedder": "none",
            }
        ).settings
        lab = Lab(server, result, rng)
        with BackgroundGateway(settings) as running:
            lab.connect(running.url, [])
            _begin(lab, talks, rng)
            _speak(lab, talks, turns, rng)
            lab.disconnect()
        with BackgroundGateway(settings) as running:
            lab.connect(running.url, [talk for talk, _ in talks])
            _speak(lab, talks, turns, rng)
            lab.disconnect()
    return result


def _begin(lab: Lab, talks: Sequence[tuple[Talk, str]], rng: random.Random) -> None:
    """What is said in both conversations of a pair before anything of one's own."""
    for at in range(0, len(talks), 2):
        (one, beginning), (other, _) = talks[at : at + 2]
        if beginning == "template":  # one conversation, which both go on with
            for words in ("Who keeps the light?", "And who keeps the log?"):
                lab.turn(one, words, beginning=beginning)
            other.rows = list(one.rows)
            one.forks = one.key == other.key
            continue
        prompts = first_prompts(beginning, rng)
        for words in prompts:
            for talk in (one, other):
                lab.turn(talk, words, beginning=beginning)


def _speak(lab: Lab, talks: Sequence[tuple[Talk, str]], turns: int, rng: random.Random) -> None:
    """Turns of all conversations, in any order."""
    order = [talk for talk in talks for _ in range(turns)]
    rng.shuffle(order)
    for talk, beginning in order:
        lab.turn(talk, next(talk.steps), beginning=beginning)


def main(arguments: Sequence[str]) -> int:
    """Run, print the result as JSON, and return 1 if a caller read another's words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="recollect-callers-") as folder:
        os.environ["RECOLLECT_HOME"] = folder
        result = run_pairs(options.pairs, seed=options.seed)
    print(json.dumps(result.to_dict(), indent=2))
    return 1 if result.crossings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
