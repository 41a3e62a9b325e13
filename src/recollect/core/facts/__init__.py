"""Facts: what was stated, by whom, what it is about, and what holds now."""
