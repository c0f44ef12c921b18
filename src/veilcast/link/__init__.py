"""Links: what two members say to one another, so that whoever watches the wire sees cells and nothing else.

One secured link, still without I/O: time, chance and bytes are handed in. `door` opens links: it speaks the handshake
(`handshake`) with strangers in sealed letters (`envelope`), behind a `doorkeeper` who bounds what they cost. A link is
a row of `session`s, one for each generation of keys, which turn bodies into cells and back. `party` is this node, as it
shows itself to others and judges them.
"""
