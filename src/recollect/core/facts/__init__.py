"""Facts: statements, their speakers and subjects, and which of them are current."""
