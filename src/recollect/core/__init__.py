"""The engine and its parts: values, rules, wire formats, turns, compaction, facts, upkeep."""
