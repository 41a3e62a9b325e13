"""`recollect serve`: memory for a fleet over HTTP, for the tenants of one PostgreSQL."""
