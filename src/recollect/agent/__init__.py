"""Recollect's own agent, without a screen: a loop around a model, four tools, and the memory
engine."""
