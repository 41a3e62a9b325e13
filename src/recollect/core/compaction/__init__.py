"""Compaction: replaces the past by a summary when the window fills. `cut` plans it, `chunks` and
`ask` prepare the model's input, `summarize` calls it, `carry` and `lines` add what code knows,
`receipt` checks the result."""
