"""Nodes of the service under load while what they stand on is killed, and its backup under load.

`load` sends, `fleet` has the processes, `scenarios` breaks them and judges, `backup` restores what
was copied meanwhile.
"""
