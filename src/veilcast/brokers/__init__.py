"""Brokers (P4): content routing over replicated brokers that keep a secret although some of them lie.

A hop is a virtual node of r replicas, and more than half of them are honest. `predicates` and `tables` route;
`sharing` takes the key of a publication from hop to hop so that no minority of replicas, colluding over all hops,
learns or withholds it; `content` takes the sealed publication along; `topology` and `placement` say how many replicas
stand where. Pure; imports the rooms below and no other mode.
"""
