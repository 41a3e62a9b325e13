"""Requests that come when they come: open-model arrivals, whatever the service makes of them.

Arrivals follow a Poisson schedule that is drawn beforehand, and a latency counts from the moment
at which a request was due, so that waiting behind others shows, also behind a generator that is
late itself. What is sent are turns of conversations with short histories, questions to memory and
messages to keep, each in a space drawn at random.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from recollect_bench.gateway.measure import quantile
from recollect_bench.gateway.processes import ServerProcess, family_seconds
from recollect_bench.scale.fleet import BenchTenant, dumped, messages

Kind: TypeAlias = Literal["prepare", "observe", "search", "ingest"]
Mix: TypeAlias = Mapping[Kind, float]

MIX: Final[Mix] = {"prepare": 0.45, "observe": 0.45, "search": 0.05, "ingest": 0.05}
"""Of all requests: a turn is one of the first two, and now and then memory is asked or told."""
PREPARE_ALONE: Final[Mix] = {"prepare": 1.0}
TURNS: Final = 6
"""Of a conversation, then the next one begins."""
QUESTION_WORDS: Final = 8
MOST_OUTSTANDING: Final = 400
"""Where so many wait for their answers, the rate is not held, and no more are sent."""
ANSWER_SECONDS: Final = 130.0
_TICKS: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_OK: Final = 200


@dataclass(slots=True, kw_only=True)
class Conversation:
    """One session of a space, as its client keeps it."""

    space: str
    session: str
    tenant: BenchTenant
    said: list[dict[str, str]] = field(default_factory=list)
    turn: int | None = None


class Traffic:
    """What clients of some spaces send next."""

    def __init__(
        self, tenants: Sequence[BenchTenant], spaces: Sequence[str], *, seed: int, passages: int
    ) -> None:
        """Every tenant has all of the spaces."""
        self._tenants, self._spaces = tenants, spaces
        self._random = random.Random(seed)
        self._texts = messages(min(passages, 200))
        self._counts = Counter(word for text in self._texts for word in text.split(" "))
        self._name = f"{seed}-{time.time_ns():x}"
        self._made = 0
        self._free: dict[tuple[Any, str], Conversation] = {}
        self._unanswered: deque[Conversation] = deque()

    def prepare(self) -> tuple[Conversation, bytes]:
        """The next turn of a conversation, or the first of another."""
        drawn = self._random
        tenant, space = drawn.choice(self._tenants), drawn.choice(self._spaces)
        talk = self._free.pop((tenant.id, space), None)
        if talk is None or len(talk.said) >= 2 * TURNS:
            self._made += 1
            session = f"talk-{self._name}-{self._made}"
            talk = Conversation(space=space, session=session, tenant=tenant)
        talk.said.append({"role": "user", "content": self._question()})
        body = {"model": "claude-sonnet-4-5", "max_tokens": 500, "messages": talk.said}
        return talk, self._post(talk, "prepare", {"request": body})

    def observe(self) -> tuple[Conversation, bytes]:
        """The reply to a turn that was prepared; a new turn where all are answered."""
        if not self._unanswered:
            return self.prepare()
        talk = self._unanswered.popleft()
        text = self._random.choice(self._texts)
        talk.said.append({"role": "assistant", "content": text})
        reply = {
            "id": f"msg_{len(talk.said)}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 500, "output_tokens": 90},
        }
        return talk, self._post(talk, "observe", {"reply": reply, "turn": talk.turn})

    def search(self) -> tuple[None, bytes]:
        """A question to memory."""
        tenant, space = self._random.choice(self._tenants), self._random.choice(self._spaces)
        body = dumped({"query": self._question(), "budget_tokens": 1_000})
        return None, http_post(f"/v1/spaces/{space}/search", tenant.key, body)

    def ingest(self) -> tuple[None, bytes]:
        """Two messages to keep."""
        self._made += 1
        pair = [
            {"role": role, "content": f"{self._made}: {self._random.choice(self._texts)}"}
            for role in ("user", "assistant")
        ]
        talk = Conversation(
            space=self._random.choice(self._spaces),
            session="notes",
            tenant=self._random.choice(self._tenants),
        )
        body = {"messages": pair, "batch": f"{self._name}-{self._made}"}
        return None, self._post(talk, "ingest", body)

    def answered(self, talk: Conversation, turn: int, *, observed: bool) -> None:
        """A turn was prepared, or its reply observed. Where nobody observes replies, the client
        alone knows them."""
        talk.turn = turn
        if talk.said[-1]["role"] == "assistant":
            self._free[talk.tenant.id, talk.space] = talk
        elif observed:
            self._unanswered.append(talk)
        else:
            talk.said.append({"role": "assistant", "content": self._random.choice(self._texts)})
            self._free[talk.tenant.id, talk.space] = talk

    def _question(self) -> str:
        """About one message, by its rarest words, so that memory holds something on it."""
        words = dict.fromkeys(self._random.choice(self._texts).split(" "))
        rarest = sorted(words, key=self._counts.__getitem__)[:QUESTION_WORDS]
        return f"What did we say about {' '.join(rarest)}?"

    def _post(self, talk: Conversation, what: str, body: Any) -> bytes:
        path = f"/v1/spaces/{talk.space}/sessions/{talk.session}/{what}"
        return http_post(path, talk.tenant.key, dumped(body))


def http_post(path: str, key: str, body: bytes, *, seconds: int = 30) -> bytes:
    """A request as it goes over the wire, and how long its answer is of use."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\nx-request-timeout: {seconds}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connections:
    """Connections to one node that are kept open, as many as are needed at once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            async with asyncio.timeout(ANSWER_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return int(head[9:12]), body

    async def close(self) -> None:
        """Let go of all."""
        for _, writer in self._idle:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        self._idle.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One request: what it was, and how long after it was due it was answered."""

    kind: Kind
    seconds: float
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What came of some seconds of requests at one rate."""

    rate: float
    """A second, as they were due."""
    answers: Sequence[Answered] = field(repr=False)
    wall_seconds: float
    cores: Mapping[str, float]
    """Cores that each part was busy on: database, node, worker, generator."""
    given_up: bool
    """So many were outstanding that the rest was not sent."""

    def milliseconds(self, share: float, kind: Kind | None = None) -> float:
        """The latency that so large a share is not above; 0 where nothing was asked."""
        taken = [one.seconds for one in self.answers if kind in (None, one.kind)]
        return quantile(taken, share) * 1_000 if taken else 0.0

    @property
    def failed(self) -> int:
        """Requests that were not answered with 200."""
        return sum(one.status != _OK for one in self.answers)


class Meter:
    """Processor time of the database, the node, the worker and this process, as the system counts
    it."""

    def __init__(self, database_pid: int, node: ServerProcess, worker: ServerProcess) -> None:
        self._database, self._node, self._worker = database_pid, node, worker

    def seconds(self) -> dict[str, float]:
        """Used so far."""
        own = time.process_time()
        return {
            "database": family_seconds(self._database),
            "node": self._node.processor_seconds(),
            "worker": self._worker.processor_seconds(),
            "generator": own,
        }


async def offer(
    connections: Connections,
    traffic: Traffic,
    *,
    rate: float,
    seconds: float,
    mix: Mix,
    meter: Meter,
    seed: int,
) -> Offered:
    """Send requests at this rate, and wait until all that were sent are answered."""
    drawn = random.Random(seed)
    kinds, weights = list(mix), list(mix.values())
    answers: list[Answered] = []
    running: set[asyncio.Task[None]] = set()
    observed = "observe" in mix

    async def one(kind: Kind, due: float) -> None:
        makes: Mapping[Kind, Callable[[], tuple[Conversation | None, bytes]]] = {
            "prepare": traffic.prepare,
            "observe": traffic.observe,
            "search": traffic.search,
            "ingest": traffic.ingest,
        }
        talk, request = makes[kind]()
        if talk is not None and talk.said[-1]["role"] == "user":
            kind = "prepare"
        try:
            status, body = await connections.ask(request)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            status, body = 0, b""
        answers.append(Answered(kind=kind, seconds=time.perf_counter() - due, status=status))
        if talk is not None and status == _OK:
            turn = turn_of(body) if kind == "prepare" else 0
            traffic.answered(talk, turn, observed=observed)

    before, begun = meter.seconds(), time.perf_counter()
    due, given_up = begun, False
    gc.collect()
    gc.freeze()
    try:
        while due < begun + seconds:
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            if given_up := len(running) >= MOST_OUTSTANDING:
                break
            task = asyncio.create_task(one(drawn.choices(kinds, weights)[0], due))
            running.add(task)
            task.add_done_callback(running.discard)
            due += drawn.expovariate(rate)
        await asyncio.gather(*running)
    finally:
        gc.unfreeze()
    wall = time.perf_counter() - begun
    after = meter.seconds()
    return Offered(
        rate=rate,
        answers=answers,
        wall_seconds=wall,
        cores={name: (after[name] - before[name]) / wall for name in after},
        given_up=given_up,
    )


def turn_of(body: bytes) -> int:
    """The number of the turn, out of an answer that is not read whole."""
    return int(body.partition(b'"turn":')[2].partition(b",")[0])
