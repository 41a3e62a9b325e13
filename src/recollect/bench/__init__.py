"""Measurements behind the documentation: what anyone can run to check a figure."""
