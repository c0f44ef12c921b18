"""Attackers inside a network: members of a mesh, and nodes of a tree, that collude."""
