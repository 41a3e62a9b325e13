"""Recollect's own agent without a terminal: a loop around a model, four tools, and the engine."""
