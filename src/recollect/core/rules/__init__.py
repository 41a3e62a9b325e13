"""Pure rules: pairing, identity, tokens, budget, redaction, noise."""
