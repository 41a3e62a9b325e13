"""Memory tools for agents. `recollect.tools` contains the public names."""
