"""The relay (P2, section 4.1): a proxy knows who the clients are, and a server behind it matches their publications.

Neither the proxy nor the server alone can link a client to a topic. `enrolment`, `subject_tags` and `body_encryption`
hold the cryptographic recipes of both profiles. The room does no I/O. It imports the rooms below it and no other mode.
"""
