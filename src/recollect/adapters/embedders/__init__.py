"""Embedders, local and remote."""
