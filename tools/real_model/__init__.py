"""A long conversation with a real model: `python -m tools.real_model`.

The model is small and its summaries are worth little: what is shown is that overflows are
recovered from, that compactions end, and that what was said early is there when it is asked for.
"""
