"""For tests of your own: the rules of the providers, checkable."""
