"""Runs the paths, over one stage boundary. Import `Engine` from here."""

from recollect.engine.engine import Context, Engine, Observation, Session, SystemClock

__all__ = ["Context", "Engine", "Observation", "Session", "SystemClock"]
