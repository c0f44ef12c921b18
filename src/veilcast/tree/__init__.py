"""The tree (P2 section 4.2): nodes that forward for one another, along trees that each subscriber draws for itself.

Nodes are reached, and speak, through an anonymous network. `node` is the machine of every member, `directory` the one
that lists them.
"""
