"""Finds words and passages in text, and scores them, without I/O."""
