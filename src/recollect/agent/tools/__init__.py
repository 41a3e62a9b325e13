"""The tools of Recollect's own agent: read, write, edit, bash, and the memory tools."""
