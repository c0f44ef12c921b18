"""The node: a member's machine with a disk; and the hosts of a relay, which are machines with a disk and no clients.

`modes` is the table of modes, `config` the file that an owner writes (`tomlfile` what all our files share), `store`
what a node keeps over restarts, `agent` what joins the machine of any mode with its store. A host has a `ledger` and a
`clerk` in their place, and `relay_files`; both disks are a `database`. No sockets and no clock here: `net` has those.
"""
