"""The gateway: memory for unmodified agents, by their base URL alone."""
