"""Adapters that turn texts into vectors: local ones, remote ones, and a cache before them."""
