"""Finding text again: words, passages, scores. Pure."""
