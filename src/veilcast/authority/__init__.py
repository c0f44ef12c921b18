"""The offline authority (P0 4.2, P1 2.1): which member may publish or read what, in which epochs, and which no longer
may.

    issuer        the authority's state and decisions
    keyring       what a member holds
    request       how a member asks for a grant with keys of its own
    bulletin      how a revocation reaches the members that stay
    revocation    the void keys that a node checks certificates against
    topic_record  the signed declaration of a topic
    topic_keys    the keys of a topic, by epoch
    role          the TLS roles, and the keys that follow from a link key
    tls_identity  certificates for TLS streams
    statement     statements that a member or host signs
    epoch         the numbering of epochs
    secret_file   secret files; the only file of this room that touches a disk
    struct_codec  the encoding of all of these

Time comes in as an epoch, and key bytes from the entropy that the caller hands in.
"""
