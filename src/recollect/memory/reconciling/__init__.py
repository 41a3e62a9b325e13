"""How a statement follows what is known: the parts of `reconcile`."""
