"""Import and export: recorded sessions, OpenClaw's files, and memory files followed for changes."""
