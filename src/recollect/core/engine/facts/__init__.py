"""Facts in the engine: the jobs that make them, and what people do with them."""
