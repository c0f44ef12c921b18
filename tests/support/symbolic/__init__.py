"""Symbolic models of the protocols, and searches over all their runs."""
