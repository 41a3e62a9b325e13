"""What was sent, and why: values of sessions, turns and receipts, and two renderers of them.

`sessions`, `turns`, `tokens`, `receipts` and `recorded` make values, which hold no sentence that
was made for a screen. `text` renders them as plain text, `drawn` with rich. Nothing here writes.
"""
