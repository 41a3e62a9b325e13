"""Recollect inside agent frameworks, one file and one extra each (docs/guides/frameworks.md).
Unchanged messages are sent as the framework's own objects. If memory fails, the framework's
messages are sent unchanged."""
