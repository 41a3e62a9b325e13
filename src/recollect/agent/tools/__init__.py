"""The tools of our own agent: read, write, edit, bash, and those of its memory."""
