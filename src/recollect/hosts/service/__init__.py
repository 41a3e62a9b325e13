"""`recollect serve`: memories over HTTP for many tenants, on one PostgreSQL database."""
