"""Calls to model providers, and the wording of their errors."""
