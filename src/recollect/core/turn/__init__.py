"""The stages of every request. Each module is a stage: it takes values and returns a result with
reasons."""
