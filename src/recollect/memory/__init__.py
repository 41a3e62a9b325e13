"""What outlives a turn: jobs, forgetting, and what is made of the archive later."""
