"""Compaction: replaces older messages with a summary when the window fills. `cut` plans a
compaction. `chunks` and `ask` prepare the model's input, and `summarize` calls the model. `carry`
and `lines` add details that code collects without a model. `receipt` checks the result."""
