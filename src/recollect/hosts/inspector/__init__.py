"""The inspector: recorded sessions and memories as pages in the browser."""
