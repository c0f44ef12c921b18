"""Brokers (P4): content routing over replicated brokers that keeps keys secret although some brokers are Byzantine.

A hop is a virtual node of r replicas. More than half of the replicas of every node are honest.

- `routing`: claims (advertisements and subscriptions), routing tables, and which claims a replica believes.
- `keys`: takes the key of a publication from hop to hop. No minority of replicas, colluding over all hops, learns or
  withholds the key.
- `content`: takes the sealed publication along.
- `operations`: redeployment, placement of replicas, and the key repository.

The room is pure (no I/O, no clock). It imports the rooms below it and no other mode.
"""
