"""Runs of a relay: attacks on it, and the delays of its clients."""
