"""Rules without I/O: pairing, identity, tokens, budget, redaction, noise."""
