"""Calls to model providers, and the recognition of their errors."""
