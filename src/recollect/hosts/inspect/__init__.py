"""Sessions, turns, receipts and windows as values, and two renderers. Nothing here writes to a
store. `sessions`, `turns`, `explained` and `status` make the values. `turns` renders them as text,
`drawn` renders them with rich."""
