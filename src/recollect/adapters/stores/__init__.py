"""Stores of a space's memory: SQLite, PostgreSQL, and the spool, used while a store is down."""
