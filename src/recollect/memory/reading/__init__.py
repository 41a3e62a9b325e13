"""What is read for facts and may become one: the parts of `extract`."""
