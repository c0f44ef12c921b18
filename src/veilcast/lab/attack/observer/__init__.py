"""Attackers that watch all wires: a global observer of a mesh."""
