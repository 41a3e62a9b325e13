"""Conversations as messy as real clients send them, for property tests of every wire format.

Start at `strategies`: `bodies`, `valid_bodies`, `windows`; `resends` rewrites a body the way a
client does between two requests without changing what it says.
"""
