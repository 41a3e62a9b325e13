"""The inspector: pages in the browser that show what the model saw, and the memory behind it. They
are the third renderer of the values in `inspect`. Every host can mount them."""
