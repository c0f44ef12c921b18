"""The tree (P2, section 4.2): each subscriber lays a tree of its own over all nodes, by which notes climb to it.

Nodes reach one another through an anonymous network, which hides the sender. `permutation`, `shape` and `plan` say who
stands where, `bundles` how everyone is told its parent and nothing else, `suspects` who loses what it should pass on;
`filters` and `labels` are the paper's way to route. Without I/O; imports the rooms below and no other mode.
"""
