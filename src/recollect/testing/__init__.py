"""Checks of the providers' rules, for your own tests."""
