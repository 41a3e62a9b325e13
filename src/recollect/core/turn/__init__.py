"""The path of every request: one verb a file, values in, a result out that says why."""
