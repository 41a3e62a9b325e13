"""Session files on disk: transcripts, the index of a space's sessions, the workspace's files."""
