"""What comes into a memory other than by turns, and goes out of it: recordings, OpenClaw's files,
memory files that are followed on disk."""
