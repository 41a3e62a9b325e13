"""Memory for agents of Python frameworks: one module and one extra per framework
(docs/guides/frameworks.md). Unchanged messages are sent as the framework's own objects. If memory
fails, the framework sends its own messages unchanged."""
