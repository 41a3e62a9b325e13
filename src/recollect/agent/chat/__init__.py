"""`recollect chat`: the agent in a terminal, in a pipe, and for programs."""
