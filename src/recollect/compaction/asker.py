"""Asks the model on behalf of one compaction, and counts what that costs.

Owns the bound: how many calls there may be is set before the first one and never exceeded. Must
never catch anything but a ModelError, and never repeat what the adapter said cannot succeed. What
always holds: every answer went through `accept`; a model that is away is asked once more in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from recollect.compaction.accept import Accepted, Rejected, accept
from recollect.errors import ModelError, ModelOverflow, ModelRefused, ModelUnavailable
from recollect.values.compaction import Spent
from recollect.values.model import Answer, Overflow, Prompt
from recollect.values.reason import Cause, Reason

Ask: TypeAlias = Callable[[Prompt], Awaitable[Answer]]
CountTokens: TypeAlias = Callable[[str], int]


class Asker:
    """The calls of one compaction."""

    __slots__ = ("_ask", "_count", "_deadline", "_focus", "_now", "_spare", "_spent")

    def __init__(
        self,
        ask: Ask,
        *,
        count_tokens: CountTokens,
        max_calls: int,
        now: Callable[[], float],
        deadline: float,
        focus: str = "",
    ) -> None:
        self._ask = ask
        self._count = count_tokens
        self._now = now
        self._deadline = deadline
        self._focus = focus
        self._spare = 1
        self._spent = Spent(max_calls=max_calls)

    @property
    def spent(self) -> Spent:
        """What was spent so far."""
        return self._spent

    async def put(self, prompt: Prompt, material: str, previous: str = "") -> Accepted | Rejected:
        """Ask, and hold the answer against its material."""
        while True:
            if self._spent.calls >= self._spent.max_calls:
                return Rejected(reason=Reason(Cause.CALLS_USED_UP), terminal=True)
            if self._now() >= self._deadline:
                return Rejected(reason=Reason(Cause.SUMMARY_LATE), terminal=True)
            self._add(calls=1)
            try:
                async with asyncio.timeout(self._deadline - self._now()):
                    answer = await self._ask(prompt)
            except TimeoutError:
                return Rejected(reason=Reason(Cause.SUMMARY_LATE), terminal=True)
            except ModelUnavailable as error:
                if self._spare:
                    self._spare -= 1
                    continue
                return Rejected(reason=Reason(Cause.MODEL_AWAY, error=str(error)), terminal=True)
            except ModelRefused as error:
                return Rejected(reason=Reason(Cause.MODEL_REFUSED, error=str(error)), terminal=True)
            except ModelOverflow as error:
                limit = (
                    error.overflow.limit_tokens if isinstance(error.overflow, Overflow) else None
                )
                reason = Reason(Cause.MODEL_OVERFLOW)
                return Rejected(reason=reason, overflow=True, limit_tokens=limit)
            except ModelError as error:
                return Rejected(reason=Reason(Cause.MODEL_WRONG, error=str(error)))
            self._account(prompt, answer)
            return accept(
                answer, material, count_tokens=self._count, previous=previous, focus=self._focus
            )

    def _account(self, prompt: Prompt, answer: Answer) -> None:
        if answer.usage is not None:
            self._add(read=answer.usage.input_tokens, written=answer.usage.output_tokens)
        else:
            read = self._count(prompt.system) + self._count(prompt.text)
            self._add(read=read, written=self._count(answer.text))

    def _add(self, *, calls: int = 0, read: int = 0, written: int = 0) -> None:
        before = self._spent
        self._spent = Spent(
            calls=before.calls + calls,
            input_tokens=before.input_tokens + read,
            output_tokens=before.output_tokens + written,
            max_calls=before.max_calls,
        )
