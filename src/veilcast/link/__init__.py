"""Secured links between two members. An observer of the wire sees cells of one size and nothing else.

The room has no I/O: the driver supplies time, randomness and bytes. `machine` wraps another machine and carries its
messages over links. `admission` opens links: it runs the handshake (`handshake`) with strangers in sealed packets
(`envelope`), and limits what strangers cost. A link is a sequence of `session`s, one for each generation of keys
(`generations`). A session turns bodies into cells and back. `transfer` carries whole messages in those bodies.
`identity` is this node's certificate and keys, and its rules for the certificates of peers.
"""
