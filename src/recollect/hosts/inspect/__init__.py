"""Sessions, turns, receipts and windows as values, and two renderers; writes nothing. `sessions`,
`turns`, `explained` and `status` make values, `turns` renders them as text, `drawn` with rich."""
