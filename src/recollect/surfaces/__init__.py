"""How people and programs meet Recollect: the command line first."""
