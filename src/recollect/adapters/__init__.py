"""Implementations of the core's interfaces (stores, providers, embedders, session files), and
`wiring`, which opens a memory with them."""
