"""The mesh (P0, P1): every member forwards for every other, and nobody can tell who reads or writes.

Follow one topic: a publisher's advert floods the neighbourhood (`adverts` checks it, `routes` keeps the nearest way
back); a subscriber answers along that way, and the paths of all subscribers merge into the topic's mesh (`branches`); a
note then floods the mesh (`duplicates`), and who holds the topic's key reads it (`content`, `inbox`). `overlay` keeps
these tables true, `heartbeat` carries all that is not a note, `membership` says which neighbours are there, and a
`neighbourhood` how they were found: `scamp` lets it form itself, `certified` does so among members only (`credentials`
prove who is one, `book` and `slots` say whom to try and whom to let in). A `policy` adds what hides the members of the
mesh: `cover` is P0's probabilistic forwarding, `shellgame` its shell game, in which two change places by a `swap`.
`node` is the machine.

What the papers leave open to members who misbehave is closed by `config.Defences`, each switch in a file of its own:
`anchors` (only those who may start chains), `caps` and `buckets` (no neighbour takes more than its share), `replays`
(nothing recorded acts again), `epochs` (tokens that change). With all of them off the mesh is the papers'.

All of that is `paper`, the conduct of the papers. `hardened` is the other `conduct`, for people: adverts come from
elected `roots`, publications reach them by a `stem` from an `outbox`, members join in batches (`joining`), and what is
chosen once is kept for life (`habits`).
"""
