"""The tools of our own agent: read, write, edit, bash."""
