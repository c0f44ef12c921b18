"""The offline authority (P0 4.2, P1 2.1): who may publish or read what, in which epochs, and who no longer may.

`issuer` decides and signs, `keyring` is what a member takes home, `request` how a member asks with keys of its own,
`bulletin` how a revocation reaches those who stay and `revoked` what forwarders make of it, `record` what a topic is
declared to be, `subjects` what its notes are matched on, `standing` and `tls` who one is on TLS streams, `vault` how
all of it lies on a disk. Only `vault` touches files; time comes in as an epoch, key bytes from the entropy handed in.
"""
