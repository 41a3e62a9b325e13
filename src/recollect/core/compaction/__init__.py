"""Compaction: what happens when the window fills.

`cut` says what is due and where the past ends, `chunks` what a model reads, `ask` how it is asked,
`summarize` runs the calls, `carry` and `lines` add what code knows, `receipt` checks.
"""
