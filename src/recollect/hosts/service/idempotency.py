"""Requests with an Idempotency-Key: carried out once, and answered again as before. The first
request claims the key in the database for a while; its answer is stored. A key is released only if
nothing was done; after that nothing stops the work."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from uuid import UUID

from recollect.core.boundary import Failure, attempted
from recollect.hosts.service.api import ApiRoute
from recollect.hosts.service.memories import TenantMemories
from recollect.hosts.service.problems import Problem, ProblemKind
from recollect.hosts.service.requests import Answer, Call, Incoming

if TYPE_CHECKING:
    from recollect.adapters.stores.postgres.tenants import TenantRecords

LOG: Final = logging.getLogger("recollect")
LEASE_MARGIN_SECONDS: Final = 1.0
FINISH_SECONDS: Final = 15.0
"""Limit beyond a request's deadline for work that must finish."""
KEEP_AGAIN_SECONDS: Final = (0.1, 2.0)
"""Delays between attempts to store an answer: the first, and the longest; they double."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(slots=True, kw_only=True)
class KeyClaim:
    """A request with an Idempotency-Key that this node carries out."""

    records: TenantRecords
    tenant: UUID
    key_hash: bytes = field(repr=False)
    token: str = field(repr=False)
    ends_at: float
    """The time when another request may take it over, by the loop's clock."""
    keeps_answer: bool
    """True if the answer itself is stored, not only its completion."""
    to_the_end: bool
    is_done: bool = False
    """The work is done and must never be repeated."""
    was_tried: asyncio.Event = field(default_factory=asyncio.Event, repr=False)


class IdempotencyKeys:
    """The keys of a deployment's requests."""

    def __init__(self, memories: TenantMemories, secret: bytes, *, keep_seconds: float) -> None:
        """`secret` is the deployment's: the database reveals neither keys nor requests."""
        self._memories, self._keep_seconds = memories, keep_seconds
        self._secret = blake2b(secret, digest_size=32, person=b"recollect-serve").digest()

    async def claim(
        self, key: str, route: ApiRoute, call: Call, incoming: Incoming
    ) -> KeyClaim | Answer | None:
        """The claim to carry a request out, or its earlier answer; None: repeat it."""
        if _TOKEN.fullmatch(key) is None:
            raise Problem(
                ProblemKind.BAD_REQUEST, "Idempotency-Key: up to 255 visible ASCII characters"
            )
        records = await self._memories.records()
        key_hash = self._mark(call, b"key", key.encode())
        lease_seconds = call.seconds + LEASE_MARGIN_SECONDS
        lease_seconds += FINISH_SECONDS if route.to_the_end else 0.0
        claimed = await records.claim(
            call.tenant.id,
            key_hash,
            self._mark(call, b"request", incoming.method.encode(), incoming.target, incoming.body),
            now=call.now,
            lease_seconds=lease_seconds,
            keep_seconds=self._keep_seconds,
        )
        if not claimed.same_request:
            raise Problem(ProblemKind.KEY_REUSED, "take a new Idempotency-Key for another request")
        if claimed.running_until is not None:
            raise Problem(
                ProblemKind.IN_PROGRESS,
                "it is under way, perhaps on a node that died: try again",
                retry_after=max(0.0, claimed.running_until - call.now),
            )
        if claimed.status is not None:
            if route.idempotency != "kept":
                return None
            again = [(b"content-type", b"application/json"), (b"idempotency-replayed", b"true")]
            return claimed.status, again, claimed.answer or b"{}"
        assert claimed.lease_token is not None
        return KeyClaim(
            records=records,
            tenant=call.tenant.id,
            key_hash=key_hash,
            token=claimed.lease_token,
            ends_at=time.monotonic() + lease_seconds,
            keeps_answer=route.idempotency == "kept",
            to_the_end=route.to_the_end,
        )

    async def carry_out(
        self,
        claim: KeyClaim,
        work: Callable[[], Awaitable[Answer | Problem]],
        settle: Callable[[], Awaitable[None]],
    ) -> Answer:
        """Run the claimed request, store its answer, then charge its usage."""
        task = self._memories.beside(self._done_once(claim, work, settle))
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not (claim.is_done or claim.to_the_end):
                task.cancel()
                await asyncio.wait({task})
            raise
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def _done_once(
        self,
        claim: KeyClaim,
        work: Callable[[], Awaitable[Answer | Problem]],
        settle: Callable[[], Awaitable[None]],
    ) -> Answer | Problem:
        try:
            answer = await work()
        except BaseException:
            self._release(claim)
            raise
        if isinstance(answer, Problem):
            self._release(claim)
            return answer
        claim.is_done = True
        kept = answer[2] if claim.keeps_answer else b""
        self._memories.beside(self._keep_answer(claim, answer[0], kept))
        await claim.was_tried.wait()  # if that failed, the caller still has its answer
        await settle()
        return answer

    def _release(self, claim: KeyClaim) -> None:
        self._memories.beside(
            attempted(claim.records.release(claim.tenant, claim.key_hash, claim.token))
        )

    async def _keep_answer(self, claim: KeyClaim, status: int, answer: bytes) -> None:
        seconds, most = KEEP_AGAIN_SECONDS
        while True:
            kept = await attempted(
                claim.records.keep_answer(
                    claim.tenant, claim.key_hash, claim.token, status=status, answer=answer
                )
            )
            claim.was_tried.set()
            if not isinstance(kept, Failure):
                return
            if time.monotonic() + seconds > claim.ends_at:
                LOG.error("an answer could not be kept for its Idempotency-Key: %s", kept.said)
                return
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, most)

    def _mark(self, call: Call, *parts: bytes) -> bytes:
        made = blake2b(call.tenant.id.bytes, key=self._secret, digest_size=32)
        for part in parts:
            made.update(len(part).to_bytes(8, "big") + part)
        return made.digest()
