"""What is done to a stored memory beside the turns: jobs, vectors, forgetting, redacting."""
