"""`recollect bench live`: what stands in the request when a user asks, at the defaults."""
