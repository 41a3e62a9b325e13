"""What was sent, and why: values of sessions, turns, receipts and windows, and two renderers.

`sessions`, `turns`, `explained` and `status` make values, which hold data and no sentence that was
made for a screen. `text` renders them as plain text, `drawn` with rich. Nothing here writes.
"""
