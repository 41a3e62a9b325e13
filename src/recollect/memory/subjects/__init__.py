"""What a statement is about: the parts of `name_subject`."""
