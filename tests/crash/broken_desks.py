"""Desks with one promise broken each, to see that the harness notices when agents are killed."""

import itertools
from typing import Any

from tools.crash.desk import Desk

from recollect.adapters.session.transcript import SessionTranscript
from recollect.core.engine import Engine
from recollect.core.engine.archive import Persisted

LATE_LINES = 3


class LateFile:
    """Says that a line is on the disk, and writes it when some more have come."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._late: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def append(self, line: bytes) -> int:
        self._late.append(line)
        if len(self._late) > LATE_LINES:
            self._real.append(self._late.pop(0))
        return int(self._real._lines) + len(self._late)

    def close(self) -> None:
        for line in self._late:
            self._real.append(line)
        self._late.clear()
        self._real.close()


class AcksEarly(Desk):
    """Its transcript acknowledges a message before it is written."""

    def transcript(self, session: str) -> SessionTranscript:
        opened: Any = Desk.transcript(self, session)
        opened._file = LateFile(opened._file)
        return opened  # type: ignore[no-any-return]


class Forgetful(Desk):
    """Its store says it wrote every batch, and does not write every seventh."""

    def memory(self, model: Any) -> Engine:
        opened: Any = Desk.memory(self, model)
        archive = opened.parts.keeper.archive
        write, numbers = archive.write, itertools.count(1)

        async def forgets(batch: Any, later: Any = None) -> Persisted:
            if next(numbers) % 7:
                kept: Persisted = await write(batch, later)
                return kept
            return Persisted(location="store", problem="it says")

        archive.write = forgets
        return opened  # type: ignore[no-any-return]


class CutsUnrecorded(Desk):
    """Its store keeps a cut and not what it stands for."""

    def memory(self, model: Any) -> Engine:
        opened: Any = Desk.memory(self, model)
        keeper = opened.parts.keeper
        keep = keeper.keep_state

        async def without_record(*given: Any, **named: Any) -> Any:
            return await keep(*given, **{**named, "compactions": ()})

        keeper.keep_state = without_record
        return opened  # type: ignore[no-any-return]
