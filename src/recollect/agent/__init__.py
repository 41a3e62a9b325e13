"""Our own agent, without a screen: a loop around a model, four tools, and memory's engine."""
