"""Recollect inside the frameworks that agents are written with: one file and one extra each.

A framework keeps its own history and its own messages. Before each call of a model its messages
are written in a wire format that the engine knows, and the view that comes back says which of
them go out: those that nobody touched are the framework's own objects again. Where memory fails,
the framework's own messages go out as they are. Nothing is imported here: each file imports its
framework, and names the extra where that is missing (docs/guides/frameworks.md).
"""
