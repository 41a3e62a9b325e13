"""Facts: short statements, their authors and subjects, and which of them are current."""
