"""`recollect chat`: the agent in a terminal, in a pipe, or called by a program."""
