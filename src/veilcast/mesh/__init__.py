"""The mesh (P0, P1): every member forwards for every other, and no observer can tell who subscribes or publishes.

One topic, step by step:

1. A publisher's advertisement floods the network. `advertisements` checks it; `routes` stores the shortest way back.
2. A subscriber answers along that way. The paths of all subscribers merge into the topic's mesh (`branches`).
3. A notification floods the mesh (`replay` drops duplicates). A member with the topic's key opens it (`ordered_inbox`).

`node` is the machine. `overlay` keeps the tables consistent. `heartbeat` carries every message except notifications.
`neighbour_table` knows which neighbours are present. A `neighbourhood` finds them: `scamp` lets any node join;
`certified` admits certified members only (`credentials` prove membership, `address_book` chooses candidates,
`link_admission` decides which links to keep). A `hiding_policy` hides the members of a mesh: `cover` is P0's
probabilistic forwarding, and `shell_game` is P0's shell game, in which two nodes exchange positions by a `swap`.

`config.Defences` closes what the papers leave open to misbehaving members, one switch for each defence: `anchors` (only
authorised members start chains), `limits` (no neighbour takes more than its share), `replay` (a recorded message has no
effect), `epoch_tokens` (tokens change with the epoch). The mesh of the papers has all switches off.

There are two profiles (`profile`). `paper` is the profile of the papers. `hardened` is for real use: advertisements
come from elected `roots`, publications reach a root over a `stem` from an `outbox`, members join in batches
(`batch_join`), and choices are made once and kept (`sticky_choices`).
"""
