"""The daemon: one process per user that keeps memories open for hooks and other clients."""
