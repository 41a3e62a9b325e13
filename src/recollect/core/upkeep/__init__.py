"""Maintenance of a stored memory outside of turns: jobs, vectors, forgetting, redacting."""
