"""Frozen data: what the rest of the house passes around. Imports nothing but errors."""
