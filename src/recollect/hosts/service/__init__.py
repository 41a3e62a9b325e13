"""`recollect serve`: memory over HTTP for many tenants, on one PostgreSQL database."""
