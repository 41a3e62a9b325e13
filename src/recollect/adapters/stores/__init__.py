"""Stores of a space's memory: SQLite, PostgreSQL, and the spool."""
