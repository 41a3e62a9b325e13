"""The stages of every request. Each module does one step: it takes values, and returns a result
with its reasons."""
