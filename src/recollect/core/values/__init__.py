"""Frozen data that the packages pass to each other. Imports nothing but errors."""
