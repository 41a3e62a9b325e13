"""The gateway: memory for agents that nobody can change, by their base URL alone."""
