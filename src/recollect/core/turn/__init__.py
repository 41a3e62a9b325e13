"""The path of every request: one verb per file, values in, a result with its reasons out."""
