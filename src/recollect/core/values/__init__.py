"""Frozen data that all packages exchange. Imports nothing but errors."""
