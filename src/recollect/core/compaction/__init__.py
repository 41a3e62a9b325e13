"""Compaction: what happens when the window fills.

In the order of the work: `trigger` says what is due, `cut` where the past ends, `render` and
`chunks` what a model reads of it, `ask` how it is asked, `summarize` runs the calls, `carry` and
`lines` add what no model has to be trusted with, `receipt` says what became of what was known.
"""
