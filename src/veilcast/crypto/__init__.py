"""Cryptographic recipes. Each is hard to misuse, and every check raises.

Modes use the recipes (`seal`, `sign`, `topic_token`, `hash_chain`, `noise`, `group`, `shamir` and so on) and never a
primitive. All key bytes come from an `entropy` that the caller hands in, so a seeded simulator replays a run byte for
byte.
"""
