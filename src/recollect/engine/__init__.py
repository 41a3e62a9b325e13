"""Runs the paths, over one stage boundary. Import `Engine` from here."""

from recollect.boundary import SystemClock
from recollect.engine.engine import Engine
from recollect.engine.session import Context, Observation, Session

__all__ = ["Context", "Engine", "Observation", "Session", "SystemClock"]
