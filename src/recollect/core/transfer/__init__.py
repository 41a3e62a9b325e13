"""Import and export: recordings, OpenClaw's files, and memory files followed on disk."""
