"""Cryptographic recipes: each is hard to hold wrongly, and every check raises.

Modes use the recipes (`seal`, `sign`, `token`, `chain`, `noise`, `group`, `shares` and so on), never a primitive. All
key bytes come from an `entropy` that is handed in, so a seeded simulator replays byte for byte.
"""
