"""The node: a member's machine with a disk.

`modes` is the table of modes, `config` the file that an owner writes, `store` what a node keeps over restarts, `agent`
what joins the machine of any mode with its store. No sockets and no clock here: `net` has those.
"""
