"""When the window fills: one verb a file, values in, a result out that says why (design.md 2).

Pure stages: trigger, cut, chunk, share, replace_past, undo, breaker. Stages that ask a model are
handed what they need by the engine. Nothing here imports the stages of a turn or of memory.
"""
