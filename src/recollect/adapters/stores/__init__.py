"""Adapters that keep a space's memory: SQLite, PostgreSQL, and the spool."""
