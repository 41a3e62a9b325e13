"""Sessions, turns, receipts and windows as values, and their renderers. Nothing here writes to a
store. `sessions`, `turns`, `explained`, `requests`, `timeline` and `status` create the values.
`turns` and `text` render values as plain text, `svg` as pictures, `inspector` as pages."""
