"""One process of a user in which memories stay open, for hooks and whatever else asks for them."""
