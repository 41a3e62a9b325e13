"""Requests to a service at a steady pace, and what became of each.

Arrivals are an open model: they come when they come, however late answers are. A request that
writes carries an idempotency key and is sent again, with the same key and to the other node, as a
client would; every message has a token of its own, so what is stored can be compared with what was
acknowledged. Owns the pace, the retries and the record; judges nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

DEADLINE_SECONDS: Final = 5.0
"""What every request names as X-Request-Timeout."""
GIVE_UP_SECONDS: Final = 15.0
"""Where no answer came at all for so long, the client hangs up."""
LONGEST_PAUSE_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 0.5
PROBE_TIMEOUT_SECONDS: Final = 3.0
FILLED_MESSAGES: Final = 200
"""Messages of a space before a pace is measured: more than the passages that a turn reads."""
MOST_TURNS: Final = 12
"""Turns of a conversation before another one begins."""
AGAIN: Final = frozenset({409, 429, 502, 503, 504})
OPERATIONS: Final = {"turn": 5, "ingest": 2, "search": 3}
_WORDS: Final = (
    "window", "harbour", "engine", "ledger", "signal", "copper", "meadow", "parser", "winter",
    "lantern", "orchard", "migration", "rollback", "invoice", "cargo", "beacon", "ferry",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One try of one request; status 0 where the connection broke, -1 where nothing came."""

    operation: str
    at: float
    """When it was sent, by the monotonic clock."""
    seconds: float
    status: int
    retry_after: bool = False
    first: bool = True
    """It is not a second try."""
    place: tuple[int, str] = (0, "")
    """The number of its tenant, and its space."""


@dataclass(slots=True)
class Conversation:
    """A session whose history grows turn by turn."""

    tenant: int
    space: str
    session: str
    history: list[dict[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    """What was sent, and what came of it."""

    answers: list[Answer] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)
    """Tokens of messages that were sent, whether or not anybody said so."""
    acknowledged: dict[str, float] = field(default_factory=dict)
    """Tokens of messages that are stored, as the service said, and when it said so."""
    origins: dict[str, str] = field(default_factory=dict)
    """What each token was sent with, and where."""
    spaces: set[tuple[int, str]] = field(default_factory=set)
    given_up: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)


class Load:
    """Clients of several tenants."""

    def __init__(
        self,
        urls: Sequence[str],
        keys: Sequence[str],
        *,
        spaces: int = 4,
        patience_seconds: float = 40.0,
        seed: int = 1,
    ) -> None:
        self.urls, self._keys = list(urls), list(keys)
        self._spaces, self._patience = spaces, patience_seconds
        self._random, self._mark = random.Random(seed), f"{seed}-{time.time_ns():x}"
        self._free: list[Conversation] = []
        self._count = 0
        self._unready: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._http: aiohttp.ClientSession | None = None
        self.record = Record()
        self.pace = 0.0
        """Arrivals a second; a turn is two requests."""

    async def fill(self) -> None:
        """Ingest into every space the messages of a long memory. A turn in a small space takes less
        time, so a pace that was measured there would not be held for long."""
        async with _session() as self._http:
            for tenant in range(len(self._keys)):
                for number in range(self._spaces):
                    path = f"/v1/spaces/s{number}/sessions/earlier/ingest"
                    tokens = [self._token(f"ingest {path}") for _ in range(FILLED_MESSAGES)]
                    said = [{"role": "user", "content": self._said(one)} for one in tokens]
                    answer = await self._patiently("ingest", tenant, path, {"messages": said})
                    assert answer is not None, f"{path} stored nothing"

    async def saturate(self, clients: int, seconds: float) -> float:
        """How many arrivals a second are done where each client sends when it has its answer."""
        done, until = 0, time.monotonic() + seconds

        async def client() -> None:
            nonlocal done
            while time.monotonic() < until:
                await self._drawn()
                done += time.monotonic() < until

        async with _session() as self._http:
            await asyncio.gather(*(client() for _ in range(clients)))
        return done / seconds

    async def run(self, until: asyncio.Event) -> None:
        """Let requests arrive at `pace` until then, and wait for those under way."""
        async with _session() as self._http:
            balancing = asyncio.create_task(self._balance())
            due = time.monotonic()
            while not until.is_set():
                due = max(due + self._random.expovariate(self.pace), time.monotonic() - 1.0)
                if (wait := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                self._begin()
            if self._tasks:
                await asyncio.wait(self._tasks)
            balancing.cancel()

    async def _balance(self) -> None:
        """Leave out nodes that are not ready, as what stands before them does: one that is starting
        lets connections wait until it serves."""
        while True:
            await asyncio.gather(*map(self._look_at, range(len(self.urls))))
            await asyncio.sleep(PROBE_SECONDS)

    async def _look_at(self, node: int) -> None:
        assert self._http is not None
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_SECONDS)
        try:
            async with self._http.get(f"{self.urls[node]}/readyz", timeout=timeout) as reply:
                ready = reply.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            ready = False
        if ready:
            self._unready.discard(node)
        else:
            self._unready.add(node)

    def _node(self, wanted: int) -> int:
        """This node, or the next that is ready; any, where none is."""
        count = len(self.urls)
        turns = [(wanted + step) % count for step in range(count)]
        return next((node for node in turns if node not in self._unready), turns[0])

    @property
    def under_way(self) -> int:
        """Requests that wait for an answer, or to be sent again."""
        return len(self._tasks)

    def _drawn(self) -> Coroutine[Any, Any, None]:
        (operation,) = self._random.choices(list(OPERATIONS), weights=list(OPERATIONS.values()))
        return {"turn": self._turn, "ingest": self._ingest, "search": self._search}[operation]()

    def _begin(self) -> None:
        task = asyncio.create_task(self._drawn())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def sends(self, token: str) -> bool:
        """Whether a token is of this load, and not of one before it."""
        return token.startswith(f"{self._mark}-")

    def _token(self, origin: str) -> str:
        self._count += 1
        token = f"{self._mark}-{self._count}"
        self.record.origins[token] = origin
        self.record.sent.add(token)
        return token

    def _said(self, token: str) -> str:
        return f"{token} " + " ".join(self._random.choices(_WORDS, k=24))

    def _place(self) -> tuple[int, str]:
        place = (
            self._random.randrange(len(self._keys)),
            f"s{self._random.randrange(self._spaces)}",
        )
        self.record.spaces.add(place)
        return place

    async def _turn(self) -> None:
        if self._free:
            conversation = self._free.pop(self._random.randrange(len(self._free)))
        else:
            self._count += 1
            tenant, space = self._place()
            conversation = Conversation(tenant, space, f"chat-{self._mark}-{self._count}")
        path = f"/v1/spaces/{conversation.space}/sessions/{conversation.session}"
        asked, replied = self._token(f"prepare {path}"), self._token(f"observe {path}")
        history = [*conversation.history, {"role": "user", "content": self._said(asked)}]
        request = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": history}
        prepared = await self._patiently(
            "prepare", conversation.tenant, f"{path}/prepare", {"request": request}
        )
        if prepared is None:
            return
        self._acknowledge(asked)
        text = self._said(replied)
        reply = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 50, "output_tokens": 30},
        }
        body = {"reply": reply, "turn": prepared["turn"]}
        seen = await self._patiently("observe", conversation.tenant, f"{path}/observe", body)
        if seen is None:
            return
        if seen["archived"] == "store":
            self._acknowledge(replied)
        else:
            self.record.given_up["observe: overtaken"] += 1
        if len(history) < 2 * MOST_TURNS:
            conversation.history = [*history, {"role": "assistant", "content": text}]
            self._free.append(conversation)

    async def _ingest(self) -> None:
        tenant, space = self._place()
        self._count += 1
        path = f"/v1/spaces/{space}/sessions/import-{self._count % 7}/ingest"
        tokens = [self._token(f"ingest {path}") for _ in range(3)]
        body = {
            "messages": [{"role": "user", "content": self._said(token)} for token in tokens],
            "batch": f"{self._mark}-{self._count}",
        }
        if await self._patiently("ingest", tenant, path, body) is not None:
            for token in tokens:
                self._acknowledge(token)

    async def _search(self) -> None:
        tenant, space = self._random.choice(sorted(self.record.spaces) or [self._place()])
        body = {"query": " ".join(self._random.choices(_WORDS, k=4))}
        # a space is there with its first write, which may be under way or refused
        await self._patiently("search", tenant, f"/v1/spaces/{space}/search", body, absent=True)

    def _acknowledge(self, token: str) -> None:
        self.record.acknowledged[token] = time.monotonic()

    async def _patiently(
        self, operation: str, tenant: int, path: str, body: Any, *, absent: bool = False
    ) -> Any:
        """The answer to a request that is sent until it succeeds; None where it did not."""
        self._count += 1
        node, pause = self._node(self._count), 0.2
        headers = {
            "authorization": f"Bearer {self._keys[tenant]}",
            "content-type": "application/json",
            "x-request-timeout": f"{DEADLINE_SECONDS:g}",
            "idempotency-key": f"{self._mark}-{self._count}",
        }
        content = json.dumps(body).encode()
        until, first = time.monotonic() + self._patience, True
        while True:
            status, told, retry_after = await self._try(
                operation, self.urls[node] + path, content, headers, first=first,
                place=(tenant, path.split("/")[3]),
            )  # fmt: skip
            if status == 200:
                return told
            if absent and status == 404:
                return {}
            if status > 0 and status not in AGAIN:
                self.record.problems[f"{operation}: {status} {told.get('type', '')}"] += 1
                return None
            first = False
            wait = max(pause, min(retry_after, LONGEST_PAUSE_SECONDS))
            wait *= self._random.uniform(0.8, 1.2)
            if time.monotonic() + wait > until:
                self.record.given_up[operation] += 1
                return None
            await asyncio.sleep(wait)
            node = self._node(node + 1)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _try(
        self,
        operation: str,
        url: str,
        content: bytes,
        headers: dict[str, str],
        *,
        first: bool,
        place: tuple[int, str],
    ) -> tuple[int, Any, float]:
        assert self._http is not None
        at, status, told, after = time.monotonic(), 0, {}, ""
        try:
            async with self._http.post(url, data=content, headers=headers) as reply:
                raw = await reply.read()
                status, after = reply.status, reply.headers.get("retry-after", "")
                told = json.loads(raw)
        except TimeoutError:
            status = -1
        except (aiohttp.ClientError, OSError):
            status = 0
        self.record.answers.append(
            Answer(
                operation=operation,
                at=at,
                seconds=time.monotonic() - at,
                status=status,
                retry_after=bool(after),
                first=first,
                place=place,
            )
        )
        return status, told, float(after) if after.isdigit() else 0.0


def _session() -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=GIVE_UP_SECONDS)
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))


async def stored_tokens(
    urls: Sequence[str], keys: Sequence[str], spaces: Sequence[tuple[int, str]]
) -> Counter[str]:
    """How many messages there are with each token, as the service exports them."""
    found: Counter[str] = Counter()
    timeout = aiohttp.ClientTimeout(total=60.0)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        for number, (tenant, space) in enumerate(spaces):
            url = f"{urls[number % len(urls)]}/v1/spaces/{space}/export"
            cursor: str | None = ""
            while cursor is not None:
                headers = {"authorization": f"Bearer {keys[tenant]}", "x-request-timeout": "60"}
                asked = {"limit": "500"} | ({"cursor": cursor} if cursor else {})
                async with http.get(url, headers=headers, params=asked) as reply:
                    if reply.status == 404:  # its first write was never taken
                        break
                    reply.raise_for_status()
                    page = await reply.json()
                for segment in page["segments"]:
                    found[segment["text"].split(" ", 1)[0]] += 1
                cursor = page["next"]
    return found
