"""The tree (P2, section 4.2): each subscriber lays its own tree over all nodes, and publications climb it.

Nodes reach one another through an anonymous network, which hides the sender. `permutation`, `tree_shape` and `layout`
decide the place of each node. `instruction_bundles` tell each node its parent and nothing else. `suspects` finds nodes
that drop publications. `destination_filters` and `paper_router` are the paper's routing. The room does no I/O. It
imports the rooms below it and no other mode.
"""
