"""What counts as said outright: the parts of `explicit`."""
