"""A scripted model, for your own tests."""
