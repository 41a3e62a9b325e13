"""Memory tools for agents; `recollect.tools` has the public names."""
