"""Sessions of thousands of turns through the whole engine: what they take on disk, in CPU time and
in memory."""
