"""The engine: runs turns, compactions, imports and forgetting. Import `Engine` from here."""

from recollect.core.boundary import SystemClock
from recollect.core.engine.engine import Engine
from recollect.core.engine.session import Context, Observation, Session

__all__ = ["Context", "Engine", "Observation", "Session", "SystemClock"]
