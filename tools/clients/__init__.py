"""Real agents through a real gateway: both sides of it recorded and compared."""
