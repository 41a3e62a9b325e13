"""Memory files as a source: which are followed, what changed, what is written and withdrawn."""
