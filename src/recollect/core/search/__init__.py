"""Search in text: words, passages and scores, without I/O."""
