"""Redaction of what is stored: the parts of `redact`."""
