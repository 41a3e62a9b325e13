"""Pure rules: pairing, identity, tokens, budget, redaction, noise. Values in, values out."""
