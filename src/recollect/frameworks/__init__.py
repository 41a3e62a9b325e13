"""Recollect inside agent frameworks: one module and one extra per framework
(docs/guides/frameworks.md). Unchanged messages are sent as the framework's own objects. If memory
fails, the framework's messages are sent unchanged."""
